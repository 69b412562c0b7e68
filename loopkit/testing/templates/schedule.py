"""A schedule."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Lt
from pydantic import PositiveFloat, PositiveInt

from loopkit.components.schedule import Schedule
from loopkit.registry import register


@register("schedule", "template", maximum="max")
class Template(Schedule):
    """Geometric number of loops: stop after each loop with the same probability.

    n = min(k, max),   P(k) = stop * (1 - stop)^(k - 1)

    Args:
        stop: Probability of stopping after a loop, in (0, 1).
        max: Largest number of loops.
    """

    def __init__(self, *, stop: Annotated[PositiveFloat, Lt(1)] = 0.25, max: PositiveInt = 16) -> None:
        self.stop = stop
        self.bounds = (1, max)
        self.mean = (1 - (1 - stop) ** max) / stop  # after clipping to max

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        return self._clip(rng.geometric(min(self.stop / scale, 1.0), size=count))
