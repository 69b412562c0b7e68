"""Schedules: draws follow the declared bounds and mean, and come from the generator."""

from __future__ import annotations

import numpy as np

from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND, DRAWS = ("schedule",), 100_000


def generator(seed: int = 0) -> np.random.Generator:
    """A generator like the one that the trainer passes."""
    return np.random.Generator(np.random.Philox(key=[seed, 5]))


@rule("declares", KIND, after=("builds",))
def declares(subject: ComponentUnderTest) -> None:
    """Its bounds and its mean are consistent, with every option."""
    for variant in subject.variants:
        schedule = subject.build(variant.options)
        where = f" with {variant.name}" if variant.name else ""
        with report_as_violation(
            f"it declares no bounds or no mean{where}",
            "set self.bounds = (min, max) and self.mean, the mean of its draws",
        ):
            (low, high), mean = schedule.bounds, float(schedule.mean)
        if not (isinstance(low, int) and isinstance(high, int) and 1 <= low <= high):
            raise Violation(
                f"its bounds are not two positive integers{where}", f"({low!r}, {high!r})", "1 <= min <= max"
            )
        if not low <= mean <= high:
            raise Violation(f"its mean is outside its bounds{where}", f"{mean} and ({low}, {high})")
        option = subject.traits.get("maximum")
        if option is not None and option not in variant.options | {o: 0 for o in subject.schema.options}:
            raise Violation(f"maximum={option!r} is not one of its options")
        if option is not None and (value := subject.spec(variant.options).options[option]) != high:
            raise Violation(f"maximum={option!r}, but that option is not its upper bound", f"{value} and {high}")


@rule("draws", KIND, after=("declares",))
def draws_(subject: ComponentUnderTest) -> None:
    """draw() returns the requested number of int64 values within its bounds."""
    schedule = subject.build()
    for count in (1, 7):
        draws = schedule.draw(generator(), count)
        if not isinstance(draws, np.ndarray) or draws.shape != (count,) or draws.dtype != np.int64:
            seen = f"{type(draws).__name__} {getattr(draws, 'shape', '')} {getattr(draws, 'dtype', '')}"
            raise Violation(
                f"draw(rng, {count}) does not return int64 [{count}]", seen, "np.clip(...).astype(np.int64)"
            )
    draws, (low, high) = schedule.draw(generator(), DRAWS), schedule.bounds
    if draws.min() < low or draws.max() > high:
        raise Violation("it draws outside its bounds", f"{draws.min()} to {draws.max()}, declared {low} to {high}")
    for scale in (0.01, 0.5, 2.0):  # a curriculum may go below the lower bound
        scaled = schedule.draw(generator(), 1000, scale)
        if scaled.min() < 1 or scaled.max() > high:
            raise Violation(f"at scale {scale} it draws outside 1 to {high}", f"{scaled.min()} to {scaled.max()}")


@rule("mean", KIND, after=("draws",))
def mean(subject: ComponentUnderTest) -> None:
    """The mean of 100,000 draws equals its declared mean."""
    schedule = subject.build()
    draws = schedule.draw(generator(1), DRAWS).astype(np.float64)
    error = max(draws.std() / DRAWS**0.5, 1e-9)
    if abs(draws.mean() - schedule.mean) > 5 * error:
        seen = f"{draws.mean():.4f} ± {error:.4f} over {DRAWS:,} draws, declared {schedule.mean:.4f}"
        hint = "declare the mean after rounding and clipping; plan and audit use it"
        raise Violation("its declared mean differs from the mean of its draws", seen, hint)


@rule("seed", KIND, after=("draws",))
def seed(subject: ComponentUnderTest) -> None:
    """Its draws follow from the generator: equal generators give equal draws, different ones different draws."""
    hint = "draw random numbers only from `rng`, and keep no state: ranks and resumed runs must agree"
    np.random.seed(1)
    schedule, copy = subject.build(), subject.build()
    first = schedule.draw(generator(), 1000)
    np.random.seed(2)
    if not np.array_equal(schedule.draw(generator(), 1000), first):
        raise Violation("equal generators give different draws", hint=hint)
    if not np.array_equal(copy.draw(generator(), 1000), first):
        raise Violation("two schedules with equal options give different draws", hint=hint)
    if schedule.bounds[0] < schedule.bounds[1] and np.array_equal(schedule.draw(generator(9), 1000), first):
        raise Violation("another generator gives the same draws", hint=hint)


@rule("scale", KIND, after=("draws",))
def scale(subject: ComponentUnderTest) -> None:
    """Its factor on the mean is positive and finite at every step, also in a run of one step."""
    schedule = subject.build()
    for num_steps in (1, 10, 1000):
        for step in {0, num_steps // 2, num_steps - 1}:
            factor = schedule.scale(step, num_steps)
            if not (np.isfinite(factor) and factor > 0):
                raise Violation(f"scale({step}, {num_steps}) is not a positive number", repr(factor))
