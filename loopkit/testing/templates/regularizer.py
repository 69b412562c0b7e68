"""A regularizer. Letters: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer, mean_square, over_tokens
from loopkit.loop import Trajectory
from loopkit.registry import register


@register("regularizer", "template")
class Template(Regularizer):
    """Penalise how far the last loop moves the state.

    R = mean over tokens and channels of (s_K - s_{K-1})²

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
    """

    def __init__(self, *, weight: NonNegativeFloat = 0.01) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        if t.reached == 0:
            return torch.zeros((), device=t.e.device)
        return over_tokens(mean_square(t.state(t.reached) - t.state(t.reached - 1)), t)
