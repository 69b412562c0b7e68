"""Schedules: how many loops a training step runs.

The trainer passes a generator keyed by (seed, optimizer step), so a draw is the same on every rank, for any micro-batch
size, and after a resume. A schedule has no state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from loopkit.errors import UserError
from loopkit.registry import AtMost, register


class Schedule:
    """Draws the number of loops of a training step, micro-step or sequence; a plain class without wiring.

    Attributes:
        bounds: Fewest and most loops that a draw can return, both inclusive.
        mean: Expected number of loops of a draw at scale 1, after rounding and clipping.
    """

    bounds: tuple[int, int]
    mean: float

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        """Draw numbers of loops.

        Args:
            rng: Source of randomness; the only one a schedule may use.
            count: Number of draws.
            scale: Factor on the mean, > 0; draws stay within the bounds.

        Returns:
            int64 [count].
        """
        raise NotImplementedError

    def scale(self, step: int, num_steps: int) -> float:
        """Factor on the mean at an optimizer step, which the trainer passes to ``draw``; 1 except for curricula.

        Args:
            step: Optimizer steps done so far.
            num_steps: Optimizer steps of the whole run.
        """
        return 1.0

    def backprop(self, step: int, num_steps: int) -> int | None:
        """Maximum number of last loops that carry gradient at an optimizer step, for curricula that ramp it.

        ``None``, the default: only ``train.backprop`` limits it.

        Args:
            step: Optimizer steps done so far.
            num_steps: Optimizer steps of the whole run.
        """
        return None

    def times(self, rng: np.random.Generator, total: int) -> tuple[float, ...]:
        """Boundaries of the loops of one run in time.

        The trainer passes a separate generator for each micro-step, so this never changes the draws of ``draw``.

        Args:
            rng: Source of randomness; the only one a schedule may use.
            total: Loops of that run.

        Returns:
            ``total + 1`` rising points from 0 to 1; ``()`` means evenly spaced.
        """
        return ()

    def _clip(self, loops: np.ndarray) -> np.ndarray:
        return np.clip(loops, *self.bounds).astype(np.int64)


def _clipped_mean(bounds: tuple[int, int], exceeds: Callable[[int], float]) -> float:
    """Mean of an integer variable clipped to bounds, from the probability that it exceeds k."""
    low, high = bounds
    return low + sum(exceeds(k) for k in range(low, high))


def _ordered(name: str, low: int, high: int) -> tuple[int, int]:
    if not 1 <= low <= high:
        raise UserError(f"schedule {name!r}: min must be at least 1 and at most max, not min {low} and max {high}")
    return low, high


@register("schedule", "fixed", short="loops", maximum="loops")
class Fixed(Schedule):
    """The same number of loops at every step.

    Args:
        loops: Number of loops.
    """

    def __init__(self, *, loops: PositiveInt = 4) -> None:
        self.loops = loops
        self.bounds = (loops, loops)
        self.mean = float(loops)

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        # a curriculum scales the number below the bounds of this schedule
        return np.clip(np.full(count, np.rint(self.loops * scale)), 1, self.loops).astype(np.int64)


@register("schedule", "uniform", maximum="max")
class Uniform(Schedule):
    """Every number of loops from min to max with equal probability.

    Args:
        min: Fewest loops.
        max: Most loops.
    """

    def __init__(self, *, min: Annotated[PositiveInt, AtMost("max")] = 1, max: PositiveInt = 8) -> None:
        self.bounds = _ordered("uniform", min, max)
        self.mean = (min + max) / 2

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        low, high = self.bounds
        top = int(np.clip(np.rint(2 * self.mean * scale) - low, low, high))
        return rng.integers(low, top, size=count, endpoint=True, dtype=np.int64)


@register("schedule", "poisson", paper="arXiv:2604.12946", maximum="max")
class Poisson(Schedule):
    """A Poisson number of loops, clipped.

    n = clip(Poisson(mean), min, max)

    Args:
        mean: Mean before clipping, in loops.
        min: Fewest loops; a draw below it becomes it.
        max: Most loops; a draw above it becomes it.
    """

    def __init__(
        self, *, mean: PositiveFloat = 8.0, min: Annotated[PositiveInt, AtMost("max")] = 1, max: PositiveInt = 64
    ) -> None:
        self.rate = float(mean)
        self.bounds = _ordered("poisson", min, max)
        below = _poisson_below(np.array([self.rate]), max)[0]
        self.mean = _clipped_mean(self.bounds, lambda k: 1.0 - below[k])

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        # numpy rejects larger rates; every cap is far below them
        return self._clip(rng.poisson(min(self.rate * scale, 1e6), size=count))


@register("schedule", "lognormal", paper="arXiv:2605.26733", maximum="max")
class LogNormal(Schedule):
    """A log-normal number of loops, rounded half to even and clipped.

    n = clip(round(LogNormal(mu, sigma)), min, max)

    Args:
        mu: Mean of the logarithm, natural.
        sigma: Standard deviation of the logarithm.
        min: Fewest loops.
        max: Most loops.

    Paper: STARS; its addition experiment has the defaults here, its Ouro experiment 1.7, 0.4, 1 and 16.
    """

    def __init__(
        self,
        *,
        mu: float = 2.0,
        sigma: NonNegativeFloat = 0.7,
        min: Annotated[PositiveInt, AtMost("max")] = 1,
        max: PositiveInt = 100,
    ) -> None:
        self.mu, self.sigma = mu, sigma
        self.bounds = _ordered("lognormal", min, max)
        self.mean = _clipped_mean(self.bounds, self._exceeds)

    def _exceeds(self, k: int) -> float:
        distance = math.log(k + 0.5) - self.mu
        if self.sigma == 0:
            return float(distance < 0)
        return 0.5 * math.erfc(distance / self.sigma / math.sqrt(2))

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        return self._clip(np.rint(rng.lognormal(self.mu + math.log(scale), self.sigma, size=count)))


@register("schedule", "poisson_lognormal", paper="arXiv:2502.05171", maximum="max")
class PoissonLogNormal(Schedule):
    """One loop plus a Poisson number whose rate is itself log-normal: mostly few loops, sometimes very many.

    n = min(1 + Poisson(r), max),  r ~ LogNormal(log(m) - sigma²/2, sigma),  m = mean - 1 or mean, by ``mean_of``

    Args:
        mean: Mean of what ``mean_of`` says, before the cap; > 1.
        mean_of: ``loops``: the loops that run, the first included. ``rate``: the Poisson's rate, to which the first
            loop is added, as Huginn's code counts: its ``mean: 32`` runs 33 loops.
        sigma: Standard deviation of the logarithm of the rate.
        max: Most loops.

    Paper: Huginn, ``mean: 32, mean_of: rate``; there is no cap there, and one draw in 100,000 is past 250.
    """

    def __init__(
        self,
        *,
        mean: Annotated[float, Gt(1)] = 33.0,
        mean_of: Literal["loops", "rate"] = "loops",
        sigma: NonNegativeFloat = 0.5,
        max: PositiveInt = 256,
    ) -> None:
        if mean <= 1:
            raise UserError(f"schedule 'poisson_lognormal': mean must be more than 1, not {mean}; use 'fixed' for 1")
        self.total, self.sigma = mean + (1.0 if mean_of == "rate" else 0.0), sigma
        self.bounds = _ordered("poisson_lognormal", 1, max)
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        below = (weights / weights.sum()) @ _poisson_below(np.exp(self._mu() + sigma * nodes), max)
        self.mean = _clipped_mean(self.bounds, lambda k: 1.0 - below[k - 1])

    def _mu(self, scale: float = 1.0) -> float:
        rate = np.maximum(self.total * scale - 1.0, 1e-9)  # a curriculum may start at one loop
        return math.log(rate) - self.sigma**2 / 2

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        rate = rng.lognormal(self._mu(scale), self.sigma, size=count)
        # numpy rejects larger rates; every cap is far below them
        return self._clip(1 + rng.poisson(np.minimum(rate, 1e6)))


def _poisson_below(rates: np.ndarray, high: int) -> np.ndarray:
    """P(Poisson(rate) <= k) for k = 0..high; [len(rates), high + 1]."""
    k = np.arange(high + 1)
    log_factorial = np.array([math.lgamma(i + 1) for i in k])
    return np.exp(k * np.log(rates)[:, None] - rates[:, None] - log_factorial).cumsum(axis=1)
