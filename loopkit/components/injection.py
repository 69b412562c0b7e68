"""How the input re-enters each loop. Dims: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Lt
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.loop import Step
from loopkit.registry import Factory, register


class Injection(nn.Module):
    """Joins state and input, before the core of every loop.

    Wiring: ``width``, ``max_loops`` (most loops in training) and ``streams`` (further streams of the core's state; 0:
    none). The state has whatever streams the core has; an injection that cannot have any states ``lacks={"streams"}``
    in its registration. The result keeps the dtype of the state.
    """

    no_decay: ClassVar[frozenset[str]] = frozenset()
    """Names of own parameters that weight decay never touches; any component may have this."""

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        """State ``[B, T, *S, D]`` and input ``[B, T, D]`` to ``u``, shaped as the state."""
        raise NotImplementedError


def per_stream(e: Tensor, c: Tensor) -> Tensor:
    """The input ``[B, T, D]``, the same for every stream of the state ``[B, T, *S, D]``; a view in its shape."""
    return e.reshape(*e.shape[:2], *(1,) * (c.dim() - e.dim()), e.shape[-1]).expand_as(c)


@register("injection", "none", ignores_input=True)
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
    """Add the input to the state, and to each of its streams.

    u = N(c + e)

    Args:
        norm: Norm of the sum. ``None``: there is none.
    """

    def __init__(self, width: int, *, norm: Factory[Norm] | None = None) -> None:
        super().__init__()
        self.norm = None if norm is None else norm(width=width)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        u = c + per_stream(e, c)
        return u if self.norm is None else self.norm(u).to(c.dtype)


@register("injection", "concat", paper="arXiv:2502.05171")
class Concat(Injection):
    """Mix state and input by a matrix.

    u = W [c, e]

    Args:
        bias: Whether to learn an offset.
        init: Initial matrix: ``random``, by the model's ``init``, or such that u is the ``state`` or the ``input``.
            With ``input``, a loop made of a pretrained model's layers starts as that model.
    """

    def __init__(self, width: int, *, bias: bool = False, init: Literal["random", "state", "input"] = "random") -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width, bias=bias)
        self.init = init

    def reset_parameters(self) -> None:
        if self.init != "random":
            of_state, of_input = self.mix.weight.detach().chunk(2, dim=1)
            passed, stopped = (of_state, of_input) if self.init == "state" else (of_input, of_state)
            nn.init.eye_(passed)
            nn.init.zeros_(stopped)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return self.mix(torch.cat([c, per_stream(e, c)], dim=-1)).to(c.dtype)


@register("injection", "gate")
class Gated(Injection):
    """Let each channel choose between state and input.

    g = sigmoid(W [c, e] + b),   u = g * c + (1 - g) * e
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * width, width)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        e = per_stream(e, c)
        g = self.gate(torch.cat([c, e], dim=-1)).sigmoid().to(c.dtype)
        return g * c + (1 - g) * e


@register("injection", "diagonal", paper="arXiv:2604.12946")
class Diagonal(Injection):
    """One step of a linear system with a decay per channel, which is below 1 whatever is learned (Parcae).

    d = softplus(b),   r = exp(a),   u = exp(-d * r) * c + w * (W e)
    w = d (euler),   w = (1 - exp(-d * r)) / r (zero_order_hold)

    If the state only decays, it tends to w / (1 - exp(-d * r)) * W e: with ``euler`` 1.456 times the input at the first
    weights; with ``zero_order_hold``, the exact solution for an input that is constant during the step, 1 / r times the
    input, whatever the step size.

    Args:
        decay: The decay of every channel at the start, between 0 and 1. The paper's is sqrt(1/5).
        input: Factor of the input: ``euler`` is the paper's, ``zero_order_hold`` the exact one.

    Paper: ``log_rate`` is its A_log, ``step_size`` its dt_bias, ``mix`` its B; none of them decays by the optimizer.
    """

    no_decay = frozenset({"log_rate", "step_size", "mix.weight"})

    def __init__(
        self,
        width: int,
        *,
        decay: Annotated[PositiveFloat, Lt(1)] = 0.4472135954999579,
        input: Literal["euler", "zero_order_hold"] = "euler",
    ) -> None:
        super().__init__()
        self.first_decay = decay
        self.input = input
        self.log_rate = nn.Parameter(torch.zeros(width))
        self.step_size = nn.Parameter(torch.empty(width))
        self.mix = nn.Linear(width, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.log_rate)
        nn.init.constant_(self.step_size, math.log(math.expm1(-math.log(self.first_decay))))
        nn.init.eye_(self.mix.weight)

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """The decay of each channel and the factor on its input, ``[D]`` each."""
        d, rate = F.softplus(self.step_size), self.log_rate.exp()
        decay = torch.exp(-d * rate)
        return decay, d if self.input == "euler" else -torch.expm1(-d * rate) / rate

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        decay, factor = self.coefficients()
        return (decay * c + factor * per_stream(self.mix(e), c).to(c.dtype)).to(c.dtype)
