"""A carry. Dims: B sequences, T tokens, D width, S streams (optional)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import torch
from annotated_types import Lt
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.carry import Carry
from loopkit.loop import Step
from loopkit.registry import register


@register("carry", "template")
class Template(Carry):
    """Multiply each channel of the state by a learned factor in (0, 1).

    c = sigmoid(a) * s

    Args:
        factor: Initial factor of every channel, in (0, 1).
    """

    def __init__(self, width: int, *, factor: Annotated[PositiveFloat, Lt(1)] = 0.9) -> None:
        super().__init__()
        self.factor = factor
        self.logit = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.logit, math.log(self.factor / (1 - self.factor)))

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s * self.logit.sigmoid().to(s.dtype)
