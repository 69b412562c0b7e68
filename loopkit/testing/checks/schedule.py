"""Schedules: draws that are what is declared, from the generator alone."""

from __future__ import annotations

import numpy as np

from loopkit.testing.case import Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest

KIND, DRAWS = ("schedule",), 100_000


def generator(seed: int = 0) -> np.random.Generator:
    """The kind of generator that the trainer hands over."""
    return np.random.Generator(np.random.Philox(key=[seed, 5]))


@rule("declares", KIND, after=("builds",))
def declares(subject: ComponentUnderTest) -> None:
    """It declares bounds and a mean that fit each other, whatever its options."""
    for variant in subject.variants:
        schedule = subject.build(variant.options)
        where = f" with {variant.name}" if variant.name else ""
        with report_as_violation(
            f"it declares no bounds or no mean{where}", "self.bounds = (min, max); self.mean = ..., of all draws"
        ):
            (low, high), mean = schedule.bounds, float(schedule.mean)
        if not (isinstance(low, int) and isinstance(high, int) and 1 <= low <= high):
            raise Violation(
                f"its bounds are not two numbers of loops{where}", f"({low!r}, {high!r})", "1 <= min <= max"
            )
        if not low <= mean <= high:
            raise Violation(f"its mean lies outside of its bounds{where}", f"{mean} and ({low}, {high})")
        option = subject.traits.get("maximum")
        if option is not None and option not in variant.options | {o: 0 for o in subject.schema.options}:
            raise Violation(f"maximum={option!r} names no option of it")
        if option is not None and (value := subject.spec(variant.options).options[option]) != high:
            raise Violation(f"maximum={option!r}, and that option is not its upper bound", f"{value} and {high}")


@rule("draws", KIND, after=("declares",))
def draws(subject: ComponentUnderTest) -> None:
    """Its draws are int64, as many as asked for, and within its bounds."""
    schedule = subject.build()
    for count in (1, 7):
        found = schedule.draw(generator(), count)
        if not isinstance(found, np.ndarray) or found.shape != (count,) or found.dtype != np.int64:
            seen = f"{type(found).__name__} {getattr(found, 'shape', '')} {getattr(found, 'dtype', '')}"
            raise Violation(f"draw(rng, {count}) gives no int64 [{count}]", seen, "np.clip(...).astype(np.int64)")
    found, (low, high) = schedule.draw(generator(), DRAWS), schedule.bounds
    if found.min() < low or found.max() > high:
        raise Violation("it draws outside of its bounds", f"{found.min()} to {found.max()}, declared {low} to {high}")
    for scale in (0.01, 0.5, 2.0):  # a curriculum may go below the lower bound of the schedule by itself
        scaled = schedule.draw(generator(), 1000, scale)
        if scaled.min() < 1 or scaled.max() > high:
            raise Violation(f"at scale {scale} it draws outside of 1 to {high}", f"{scaled.min()} to {scaled.max()}")


@rule("mean", KIND, after=("draws",))
def mean(subject: ComponentUnderTest) -> None:
    """The mean of 100,000 draws is the one that it declares."""
    schedule = subject.build()
    found = schedule.draw(generator(1), DRAWS).astype(np.float64)
    error = max(found.std() / DRAWS**0.5, 1e-9)
    if abs(found.mean() - schedule.mean) > 5 * error:
        seen = f"{found.mean():.4f} ± {error:.4f} over {DRAWS:,} draws, declared {schedule.mean:.4f}"
        hint = "`mean` is that of what is drawn, after rounding and clipping; plan and audit count with it"
        raise Violation("its declared mean is not that of its draws", seen, hint)


@rule("seed", KIND, after=("draws",))
def seed(subject: ComponentUnderTest) -> None:
    """Its draws follow from the generator alone: equal generators give equal draws, others others."""
    hint = "draw from `rng` and from nothing else, and keep no state: ranks and resumed runs must agree"
    np.random.seed(1)
    schedule, twin = subject.build(), subject.build()
    first = schedule.draw(generator(), 1000)
    np.random.seed(2)
    if not np.array_equal(schedule.draw(generator(), 1000), first):
        raise Violation("equal generators give different draws", hint=hint)
    if not np.array_equal(twin.draw(generator(), 1000), first):
        raise Violation("two schedules of equal options draw differently", hint=hint)
    if schedule.bounds[0] < schedule.bounds[1] and np.array_equal(schedule.draw(generator(9), 1000), first):
        raise Violation("it ignores the generator: another one gives the same draws", hint=hint)


@rule("scale", KIND, after=("draws",))
def scale(subject: ComponentUnderTest) -> None:
    """Its factor on the mean is positive and finite at every step, also of a run of one step."""
    schedule = subject.build()
    for num_steps in (1, 10, 1000):
        for step in {0, num_steps // 2, num_steps - 1}:
            factor = schedule.scale(step, num_steps)
            if not (np.isfinite(factor) and factor > 0):
                raise Violation(f"scale({step}, {num_steps}) is no positive number", repr(factor))
