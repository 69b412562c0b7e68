"""Regularizers of the state's scale. Dims: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer, mean_square, over_loops
from loopkit.loop import Trajectory
from loopkit.registry import register


@register("regularizer", "norm_penalty", paper="arXiv:2606.24898")
class NormPenalty(Regularizer):
    """Penalise the squared RMS of the recurrent state, so that its scale is visible to a loss.

    R = mean over loops, tokens and channels of s_k²

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
    """

    mean_over = "tokens"

    def __init__(self, *, weight: NonNegativeFloat = 0.01) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        return over_loops(lambda k: mean_square(t.state(k)), t)


@register("regularizer", "scale_anchor", paper="arXiv:2606.24898")
class ScaleAnchor(Regularizer):
    """Pull the RMS of every token's state to a value.

    R = mean over loops and tokens of (rms(s_k) - target)²

    Args:
        weight: Coefficient of the penalty, dimensionless, >= 0.
        target: The value, in units of the state, > 0.
    """

    mean_over = "tokens"

    def __init__(self, *, weight: NonNegativeFloat = 0.01, target: PositiveFloat = 1.0) -> None:
        super().__init__()
        self.weight = weight
        self.target = target

    def forward(self, t: Trajectory) -> Tensor:
        return over_loops(lambda k: (mean_square(t.state(k)).clamp(min=1e-12).sqrt() - self.target).square(), t)
