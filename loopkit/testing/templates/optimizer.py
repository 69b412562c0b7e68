"""An optimizer."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat

from loopkit.components.optimizer import OptimizerRule, ParameterGroup
from loopkit.registry import Fraction, register


@register("optimizer", "template")
class Template(OptimizerRule):
    """SGD with Nesterov momentum.

    v ← momentum · v + g,   p ← p - lr · (g + momentum · v)

    Args:
        momentum: Decay of the running update v, in [0, 1).
        weight_decay: Coefficient of the L2 penalty, >= 0; only for groups with decay.
    """

    def __init__(self, *, momentum: Fraction = 0.9, weight_decay: NonNegativeFloat = 0.0) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay

    def build(self, groups: list[ParameterGroup]) -> torch.optim.Optimizer:
        settings = [
            {"params": g.params, "name": g.name, "weight_decay": self.weight_decay if g.decay else 0.0} for g in groups
        ]
        # lr 0: the trainer sets it before every step
        return torch.optim.SGD(settings, lr=0.0, momentum=self.momentum, nesterov=self.momentum > 0)

    def state_numbers(self, groups: list[ParameterGroup]) -> int:
        return sum(p.numel() for group in groups for p in group.params) if self.momentum else 0
