"""Curricula: schedules whose mean number of loops rises during training."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from loopkit.components.schedule import Poisson, Schedule
from loopkit.errors import UserError
from loopkit.registry import AtMost, Factory, Share, register, use


def _progress(step: int, num_steps: int, ramp: int | float, shape: Literal["linear", "one_minus_sqrt"]) -> float:
    """Progress of a ramp, 0 to 1."""
    length = ramp if isinstance(ramp, int) else ramp * num_steps
    t = min(step / length, 1.0) if length > 0 else 1.0
    return t if shape == "linear" else 1 - math.sqrt(1 - t)


@register("schedule", "curriculum", paper="arXiv:2511.07384", lengths={"ramp"})
class Curriculum(Schedule):
    """Any schedule, its mean ramped up from few loops.

    mean(t) = start + (mean - start) · p(t),  p = t or 1 - √(1 - t),  t = step / length of the ramp, at most 1

    Args:
        of: The schedule that is ramped.
        start: Mean number of loops at the first step.
        ramp: Length of the ramp: a whole number of optimizer steps, or a share of the run in [0, 1].
        shape: How the mean rises.
    """

    def __init__(
        self,
        *,
        of: Factory[Schedule] = use("poisson_lognormal"),
        start: PositiveFloat = 1.0,
        ramp: PositiveInt | Share = 0.25,
        shape: Literal["linear", "one_minus_sqrt"] = "linear",
    ) -> None:
        self.of = of()
        self.start, self.ramp, self.shape = start, ramp, shape
        low, high = self.of.bounds
        self.bounds = (min(low, max(math.floor(start), 1)), high)
        self.mean = self.of.mean

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        return self.of.draw(rng, count, scale)

    def scale(self, step: int, num_steps: int) -> float:
        progress = _progress(step, num_steps, self.ramp, self.shape)
        return (self.start + (self.mean - self.start) * progress) / self.mean * self.of.scale(step, num_steps)

    def backprop(self, step: int, num_steps: int) -> int | None:
        return self.of.backprop(step, num_steps)

    def times(self, rng: np.random.Generator, total: int) -> tuple[float, ...]:
        return self.of.times(rng, total)


@register("schedule", "poisson_curriculum", paper="arXiv:2604.12946", maximum="max", lengths={"ramp"})
class PoissonCurriculum(Poisson):
    """Parcae's ramp of a Poisson schedule: in whole loops, of those without gradient, of those with, or of both.

    mean(t) = n(t) + g(t),   n = ⌈p · (mean - backprop)⌉,  g = max(⌈p · backprop⌉, 1),  of which g carry gradient
    p = t or 1 - √(1 - t),   t = step / length of the ramp, at most 1;  what is not ramped has p = 1

    Args:
        mean: Mean after the ramp, before clipping, in loops.
        backprop: Loops of the mean that carry gradient after the ramp, as ``train.backprop`` says.
        ramps: What rises: ``forward`` the loops without gradient, ``backward`` those with, or ``both``.
        ramp: Length of the ramp: a whole number of optimizer steps, or a share of the run in [0, 1].
        shape: How it rises.
        min: Fewest loops; a draw below it becomes it.
        max: Most loops; a draw above it becomes it.
    """

    def __init__(
        self,
        *,
        mean: PositiveInt = 8,
        backprop: Annotated[PositiveInt, AtMost("mean")] = 4,
        ramps: Literal["forward", "backward", "both"] = "forward",
        ramp: PositiveInt | Share = 0.25,
        shape: Literal["linear", "one_minus_sqrt"] = "linear",
        min: Annotated[PositiveInt, AtMost("max")] = 1,
        max: PositiveInt = 64,
    ) -> None:
        super().__init__(mean=mean, min=min, max=max)
        if backprop > mean:
            raise UserError(f"schedule 'poisson_curriculum': backprop {backprop} is more than the mean, {mean}")
        self.max_backprop, self.ramps, self.ramp, self.shape = backprop, ramps, ramp, shape

    def scale(self, step: int, num_steps: int) -> float:
        p = 1.0 if self.ramps == "backward" else _progress(step, num_steps, self.ramp, self.shape)
        return (_round_up(p * (self.rate - self.max_backprop)) + self.backprop(step, num_steps)) / self.rate

    def backprop(self, step: int, num_steps: int) -> int:
        p = 1.0 if self.ramps == "forward" else _progress(step, num_steps, self.ramp, self.shape)
        return max(_round_up(p * self.max_backprop), 1)


def _round_up(loops: float) -> int:
    """Round up; the tolerance keeps a rounding error from adding a loop."""
    return math.ceil(loops - 1e-9)
