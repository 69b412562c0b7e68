"""Learning rates: a pure function of the step, never above the peak."""

from __future__ import annotations

import math

from loopkit.plural import plural
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND = ("lr",)


@rule("rate", KIND, after=("builds",))
def rate(subject: ComponentUnderTest) -> None:
    """It is finite, never negative and never above its peak, for any length of a run and with every option."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        lr = subject.build(variant.options)
        if not isinstance(getattr(lr, "peak", None), int | float):
            raise Violation("it has no peak", repr(getattr(lr, "peak", None)), "self.peak = peak")
        for num_steps in (1, 2, 1000):
            with report_as_violation(f"it has no learning rate in a run of {plural(num_steps, 'step')}{where}"):
                rates = [lr.at(step, num_steps) for step in range(num_steps)]
            invalid = [step for step, value in enumerate(rates) if not (math.isfinite(value) and value >= 0)]
            if invalid:
                raise Violation(f"at({invalid[0]}, {num_steps}) is not a learning rate{where}", repr(rates[invalid[0]]))
            if max(rates) > lr.peak * (1 + 1e-9):
                raise Violation(f"it exceeds its peak{where}", f"{max(rates):g} above {lr.peak:g}")


@rule("peak", KIND, after=("rate",))
def peak(subject: ComponentUnderTest) -> None:
    """In a run of 1000 steps it reaches its peak."""
    lr = subject.build()
    highest = max(lr.at(step, 1000) for step in range(1000))
    if highest < 0.99 * lr.peak:
        raise Violation("it never reaches its peak", f"{highest:g} of {lr.peak:g}", "peak is the largest learning rate")


@rule("pure", KIND, after=("rate",))
def pure(subject: ComponentUnderTest) -> None:
    """It depends only on the step, so a resumed run needs no state."""
    lr = subject.build()
    forwards = [lr.at(step, 50) for step in range(50)]
    backwards = [lr.at(step, 50) for step in reversed(range(50))][::-1]
    if forwards != backwards or subject.build().at(31, 50) != forwards[31]:
        raise Violation("its learning rate depends on earlier calls", hint="compute it from (step, num_steps)")
