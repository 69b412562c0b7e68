"""A placement. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.components.placement import Placement
from loopkit.loop import Step
from loopkit.registry import register


@register("placement", "template")
class Template(Placement):
    """Pre-norm with one learned scale for the output of the sublayer.

    y = x + gain * f(N(x))

    Args:
        gain: Initial scale, dimensionless, > 0.
    """

    def __init__(self, norm: Callable[[], Norm], *, gain: PositiveFloat = 0.5) -> None:
        super().__init__()
        self.norm = norm()
        self.initial_gain = gain
        self.gain = nn.Parameter(torch.empty(()))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.gain, self.initial_gain)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return x + (self.gain * f(self.norm(x))).to(x.dtype)
