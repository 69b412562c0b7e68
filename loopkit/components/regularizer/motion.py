"""Regularizers of how far the state moves. Dims: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer, over_loops, over_tokens
from loopkit.loop import Trajectory, widen
from loopkit.registry import register


@register("regularizer", "step_l2", paper="arXiv:2605.26733")
class StepL2(Regularizer):
    """Penalise the distance that the state moves in a loop.

    R = mean over tokens of ||s_k - s_{k-1}||₂

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
        loops: Take the last loop alone, or the mean over all.

    Paper: STARS, a control that does not make the loop stable: the last loop, weight 1.
    """

    mean_over = "tokens"

    def __init__(self, *, weight: NonNegativeFloat = 1.0, loops: Literal["last", "all"] = "last") -> None:
        super().__init__()
        self.weight = weight
        self.loops = loops

    def forward(self, t: Trajectory) -> Tensor:
        if self.loops == "last":
            return over_tokens(_last_distance(t), t)
        return over_loops(lambda k: _distance(t.state(k), t.state(k - 1)), t)


@register("regularizer", "fixed_point")
class FixedPoint(Regularizer):
    """Penalise how far one more loop moves the last state, relative to its norm.

    R = mean over tokens of ||f(c_K) - c_K||² / (||c_K||² + eps)

    f is the recurrence, with the random numbers of loop K, and c_K its carried last state. The gradient also reaches
    c_K. The cost is one more loop with attention of plain matrix products.

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
        eps: Added to the squared norm of the state, > 0.
    """

    mean_over = "tokens"

    def __init__(self, *, weight: NonNegativeFloat = 0.1, eps: PositiveFloat = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, t: Trajectory) -> Tensor:
        c = t.carried(t.reached)
        change, norm = (widen(x).square().flatten(2).sum(dim=-1) for x in (t.step(c) - c, c))
        return over_tokens(change / (norm + self.eps), t)


def _last_distance(t: Trajectory) -> Tensor:
    """Distance that the last loop of each sequence moved its state, ``[B, T]``."""
    distance = _distance(t.state(t.reached), t.state(t.reached - 1))
    for k in range(t.reached - 1, 0, -1):
        later, current = t.active(k + 1), t.active(k)
        if later is not None and current is not None and bool((ended := current & ~later).any()):
            distance = torch.where(ended[:, None], _distance(t.state(k), t.state(k - 1)), distance)
    return distance


def _distance(after: Tensor, before: Tensor) -> Tensor:
    """``[B, T, *S, D]`` each, to ``[B, T]``; its gradient is 0 where nothing moved, not undefined."""
    square = (widen(after) - widen(before)).square().flatten(2).sum(-1)
    moving = square > 0
    return torch.where(moving, torch.where(moving, square, 1.0).sqrt(), 0.0)
