"""Learning rates: a pure function of the step, never above the peak."""

from __future__ import annotations

import math

from loopkit.testing.case import Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest

KIND = ("lr",)


@rule("rate", KIND, after=("builds",))
def rate(subject: ComponentUnderTest) -> None:
    """It is finite, never negative and never above its peak, for runs of any length and whatever its options."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        part = subject.build(variant.options)
        if not isinstance(getattr(part, "peak", None), int | float):
            raise Violation("it has no peak", repr(getattr(part, "peak", None)), "self.peak = peak")
        for num_steps in (1, 2, 1000):
            with report_as_violation(f"it has no rate in a run of {num_steps} steps{where}"):
                rates = [part.at(step, num_steps) for step in range(num_steps)]
            bad = [step for step, value in enumerate(rates) if not (math.isfinite(value) and value >= 0)]
            if bad:
                raise Violation(f"at({bad[0]}, {num_steps}) is no rate{where}", repr(rates[bad[0]]))
            if max(rates) > part.peak * (1 + 1e-9):
                raise Violation(f"it goes above its peak{where}", f"{max(rates):g} above {part.peak:g}")


@rule("peak", KIND, after=("rate",))
def peak(subject: ComponentUnderTest) -> None:
    """In a run of 1000 steps it reaches its peak."""
    part = subject.build()
    highest = max(part.at(step, 1000) for step in range(1000))
    if highest < 0.99 * part.peak:
        raise Violation("it never reaches its peak", f"{highest:g} of {part.peak:g}", "peak is the largest rate")


@rule("pure", KIND, after=("rate",))
def pure(subject: ComponentUnderTest) -> None:
    """It depends on the step alone, so that a resumed run needs no state of it."""
    part = subject.build()
    forwards = [part.at(step, 50) for step in range(50)]
    backwards = [part.at(step, 50) for step in reversed(range(50))][::-1]
    if forwards != backwards or subject.build().at(31, 50) != forwards[31]:
        raise Violation(
            "its rate depends on which steps were asked for before", hint="compute it from (step, num_steps)"
        )
