"""A learning rate schedule."""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt

from loopkit.components.lr import LearningRate
from loopkit.registry import register


@register("lr", "template", short="peak")
class Template(LearningRate):
    """Linear warmup, then inverse square root decay.

    lr = peak * min(n / warmup, sqrt(warmup / n)),   n = step + 1

    Args:
        peak: Largest learning rate.
        warmup: Number of warmup steps.
    """

    def __init__(self, *, peak: PositiveFloat = 3e-4, warmup: PositiveInt = 20) -> None:
        self.peak, self.warmup = peak, warmup

    def at(self, step: int, num_steps: int) -> float:
        n = step + 1
        return self.peak * min(n / self.warmup, (self.warmup / n) ** 0.5)
