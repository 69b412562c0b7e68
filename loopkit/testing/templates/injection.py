"""An injection. Letters: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from loopkit.components.injection import Injection, per_stream
from loopkit.loop import Step
from loopkit.registry import register


@register("injection", "template")
class Template(Injection):
    """Add the input, weighed channel by channel.

    u = c + a * e

    Args:
        weight: The factor of every channel at the start, dimensionless.
    """

    no_decay: ClassVar[frozenset[str]] = frozenset({"weight"})

    def __init__(self, width: int, *, weight: float = 1.0) -> None:
        super().__init__()
        self.first = weight
        self.weight = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.first)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return c + per_stream(self.weight * e, c).to(c.dtype)
