"""How the input re-enters each loop. Letters: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.loop import Step
from loopkit.registry import Factory, register


class Injection(nn.Module):
    """Joins state and input. Wiring: ``width``, ``max_loops``. The result keeps the dtype of the state."""

    no_decay: ClassVar[frozenset[str]] = frozenset()
    """Names of own parameters that weight decay never touches; any component may have this."""

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        """State ``[B, T, *S, D]`` and input ``[B, T, D]`` to ``u``, shaped as the state."""
        raise NotImplementedError


@register("injection", "none")
class NoInjection(Injection):
    """The input enters through the start alone.

    u = c
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return c


@register("injection", "add")
class Add(Injection):
    """Add the input to the state.

    u = N(c + e)

    Args:
        norm: Norm of the sum. ``None``: there is none.
    """

    def __init__(self, width: int, *, norm: Factory[Norm] | None = None) -> None:
        super().__init__()
        self.norm = None if norm is None else norm(width=width)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        u = c + e
        return u if self.norm is None else self.norm(u).to(c.dtype)


@register("injection", "concat", paper="arXiv:2502.05171")
class Concat(Injection):
    """Mix state and input by a matrix.

    u = W [c, e]

    Args:
        bias: Whether to learn an offset.
    """

    def __init__(self, width: int, *, bias: bool = False) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width, bias=bias)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return self.mix(torch.cat([c, e], dim=-1)).to(c.dtype)


@register("injection", "gate")
class Gated(Injection):
    """Let each channel choose between state and input.

    g = sigmoid(W [c, e] + b),   u = g * c + (1 - g) * e
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * width, width)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        g = self.gate(torch.cat([c, e], dim=-1)).sigmoid().to(c.dtype)
        return g * c + (1 - g) * e
