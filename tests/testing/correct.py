"""Correct components in unusual forms, on which the kit must not raise false alarms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from loopkit.components.carry import Carry
from loopkit.components.mlp import Mlp
from loopkit.loop import Step, Tally
from loopkit.registry import register


@register("mlp", "records_alone")
class RecordsAlone(Mlp):
    """Has a predictor that receives its gradient only through a record."""

    def __init__(self, width: int, layer: int) -> None:
        super().__init__()
        self.name = f"difficulty/{layer}"
        self.out = nn.Linear(width, width)
        self.predict = nn.Linear(width, 1)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        step.records[self.name] = self.predict(x.detach()).squeeze(-1)
        return self.out(x.tanh())


@register("carry", "plain_scalar")
class PlainScalar(Carry):
    """Has a scalar parameter, and a buffer with a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("mean", torch.tensor(1.0))
        self.seen = Tally()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.factor, 0.5)
        nn.init.ones_(self.mean)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        if self.training:
            self.seen.add(s.square().flatten(2).mean(dim=-1), step.counted)
        return s * (self.factor / self.mean).to(s.dtype)

    def update_buffers(self) -> None:
        self.mean.lerp_(self.seen.mean()[0].to(self.mean.dtype), 0.1)
