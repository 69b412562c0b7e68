"""An injection. Dims: B sequences, T tokens, D width, S streams (optional)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from loopkit.components.injection import Injection, per_stream
from loopkit.loop import Step
from loopkit.registry import register


@register("injection", "template")
class Template(Injection):
    """Add the input, scaled by a learned weight for each channel.

    u = c + a * e

    Args:
        weight: Initial weight of every channel, dimensionless.
    """

    no_decay: ClassVar[frozenset[str]] = frozenset({"weight"})

    def __init__(self, width: int, *, weight: float = 1.0) -> None:
        super().__init__()
        self.initial_weight = weight
        self.weight = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.initial_weight)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return c + per_stream(self.weight * e, c).to(c.dtype)
