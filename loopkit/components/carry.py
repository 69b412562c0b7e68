"""What passes from one loop to the next. Dims: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from annotated_types import Lt, MinLen
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.errors import UserError
from loopkit.loop import Step
from loopkit.registry import Factory, register, use


class Carry(nn.Module):
    """Makes ``c_k`` of ``s_k``, between loops only.

    Wiring: ``width``, ``max_loops`` (most loops in training). A carry that cannot have streams states
    ``lacks={"streams"}``. The result keeps the dtype of the state.
    """

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        """``s_k``, ``[B, T, *S, D]``, to ``c_k``; ``read()`` gives ``z_k``, ``[B, T, D]``, computed if asked for."""
        raise NotImplementedError


@register("carry", "identity")
class Identity(Carry):
    """The state itself.

    c = s
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s


@register("carry", "norm", paper="arXiv:2606.24898")
class Normed(Carry):
    """A norm of its own between loops.

    c = N(s)

    Args:
        norm: Which norm.
    """

    def __init__(self, width: int, *, norm: Factory[Norm] = use("rmsnorm")) -> None:
        super().__init__()
        self.norm = norm(width=width)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return self.norm(s).to(s.dtype)


@register("carry", "readout", paper="arXiv:2510.25741", lacks={"streams"})
class FromReadout(Carry):
    """What the head sees goes back into the loop (Ouro).

    c_k = z_k
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        z = read()
        if z.shape != s.shape:
            raise UserError(f"carry readout: the state {list(s.shape)} is not shaped like the readout {list(z.shape)}")
        return z.to(s.dtype)


@register("carry", "clamp")
class Clamp(Carry):
    """Hold each token's root mean square at a value, keeping its direction.

    c = s * rms / max(rms(s), 1e-6)

    Args:
        rms: The value, in units of the state, > 0.
        side: ``both`` rescales every token, ``above`` only those whose root mean square is larger.
    """

    def __init__(self, *, rms: PositiveFloat = 1.0, side: Literal["both", "above"] = "both") -> None:
        super().__init__()
        self.rms = rms
        self.side = side

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        # a floor instead of a sum under the root: then the result's scale is exact, and its gradient finite at zero
        size = s.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).sqrt()
        factor = self.rms / size
        return s * (factor if self.side == "both" else factor.clamp(max=1.0))


@register("carry", "damping", paper="arXiv:2606.24898")
class Damping(Carry):
    """Shrink the state by one learned factor (the paper's spectral damping).

    c = sigmoid(a) * s

    Args:
        factor: The factor at the start, between 0 and 1. The paper's is sigmoid(2), about 0.88.
    """

    def __init__(self, *, factor: Annotated[PositiveFloat, Lt(1)] = 0.8807970779778823) -> None:
        super().__init__()
        self.factor = factor
        self.logit = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.logit, math.log(self.factor / (1 - self.factor)))

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s * self.logit.sigmoid()


@register("carry", "chain")
class Chain(Carry):
    """One carry after another; ``read`` stays that of the loop's own state.

    c = carry_n(... carry_1(s))

    Args:
        of: The carries, in the order in which they apply.
    """

    def __init__(self, width: int, max_loops: int, *, of: Annotated[list[Factory[Carry]], MinLen(1)]) -> None:
        super().__init__()
        if not of:
            raise UserError("carry chain: 'of' lists no carry; name at least one, or use carry: identity")
        self.of = nn.ModuleList(carry(width=width, max_loops=max_loops) for carry in of)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        for carry in self.of:
            s = carry(s, read, step)
        return s
