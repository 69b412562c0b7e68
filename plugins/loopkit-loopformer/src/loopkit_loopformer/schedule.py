"""Shortcut schedules: fewer and longer steps."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from loopkit.components.schedule import Schedule
from loopkit.errors import UserError
from loopkit.registry import AtMost, register


@register("schedule", "shortcut", paper="arXiv:2602.11451", maximum="max")
class Shortcut(Schedule):
    """Draw a random number of loops at random points of a time grid.

    n ~ uniform(min..max),   times = 0, n - 1 of the grid's inner points, 1

    Args:
        min: Fewest loops.
        max: Most loops.
        spare: Grid steps beyond ``max``; the grid has max + spare steps, and a loop takes one or more of them.

    Raises:
        UserError: If min exceeds max.
    """

    def __init__(
        self,
        *,
        min: Annotated[PositiveInt, AtMost("max")] = 1,
        max: PositiveInt = 8,
        spare: NonNegativeInt = 0,
    ) -> None:
        if not 1 <= min <= max:
            raise UserError(f"schedule 'shortcut': min must be 1 to max = {max}, not {min}")
        self.grid = max + spare
        self.bounds = (min, max)
        self.mean = (min + max) / 2

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        low, high = self.bounds
        top = int(np.clip(np.rint(2 * self.mean * scale) - low, low, high))
        return rng.integers(low, top, size=count, endpoint=True, dtype=np.int64)

    def times(self, rng: np.random.Generator, total: int) -> tuple[float, ...]:
        if not 1 <= total <= self.grid:
            raise UserError(f"schedule 'shortcut': {total} loops do not fit on a grid of {self.grid} steps")
        inner = np.sort(rng.choice(self.grid - 1, size=total - 1, replace=False) + 1)
        return (0.0, *(inner / self.grid).tolist(), 1.0)
