"""A regularizer. Dims: B sequences, T tokens, D width, S streams (optional)."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer, over_tokens
from loopkit.loop import Trajectory, widen
from loopkit.registry import register


@register("regularizer", "template")
class Template(Regularizer):
    """Penalise the change of the state in the last loop.

    R = mean over tokens and channels of (s_K - s_{K-1})²

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
    """

    mean_over = "tokens"

    def __init__(self, *, weight: NonNegativeFloat = 0.01) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        if t.reached == 0:
            return torch.zeros((), device=t.e.device)
        change = t.state(t.reached) - t.state(t.reached - 1)
        return over_tokens(widen(change).square().flatten(2).mean(dim=-1), t)
