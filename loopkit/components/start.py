"""The state before the first loop. Letters: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.loop import Step
from loopkit.registry import register


class Start(nn.Module):
    """Makes ``c_0``. Wiring: ``width``. Random ones draw from ``step.noise`` and from nothing else."""

    def forward(self, e: Tensor, step: Step) -> Tensor:
        """``[B, T, D]`` to ``[B, T, *S, D]``."""
        raise NotImplementedError


@register("start", "embedding")
class FromEmbedding(Start):
    """The prelude's output.

    c_0 = e
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return e


@register("start", "zeros")
class Zeros(Start):
    """Zero, so that the first loop sees the input only through the injection.

    c_0 = 0
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return torch.zeros_like(e)


@register("start", "normal", paper="arXiv:2502.05171", noise=True)
class Normal(Start):
    """Gaussian noise, fixed by (seed, optimizer step, sample, position).

    c_0 ~ N(0, std²)

    Args:
        std: Standard deviation, in units of the state, > 0.

    Paper: Huginn truncates at three standard deviations; here nothing is cut.
    """

    def __init__(self, *, std: PositiveFloat = 1.0) -> None:
        super().__init__()
        self.std = std

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return (self.std * step.noise.normal(e.shape[-1])).to(e.dtype)
