"""Tasks: they ask, mark and sum up."""

from __future__ import annotations

import math
from typing import Any

from loopkit.components.task import Completion, Corpus, Generate, Likelihood
from loopkit.testing.case import NotChecked, Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest

KIND = ("task",)
ANSWERS: dict[type, tuple[Any, ...]] = {
    Corpus: (
        Likelihood(70.0, 20, 10, 60, sequences=4, right=15, exact=2),
        Likelihood(5000.0, 20, sequences=4, right=0, exact=0),
        Likelihood(0.0, 0, 0, 0, sequences=0, right=0, exact=0),
    ),
    Generate: (
        Completion("The answer is \\boxed{7}.", 9, True),
        Completion("x" * 3000, 2048, False),
        Completion("", 0, True),
    ),
}
"""Answers of every kind of request: a usual one, a very bad one without words and bytes, and an empty one."""


@rule("requests", KIND, after=("builds",))
def requests(subject: ComponentUnderTest) -> None:
    """It asks the same each time, at least once, under keys of their own."""
    with report_as_violation("it cannot say what it asks"):
        first, again = ([r.key for r in subject.build().requests()] for _ in range(2))
    if not first:
        raise Violation("it asks nothing")
    if first != again:
        raise Violation("it does not ask the same each time", f"{first[:3]} and {again[:3]}")
    if len(set(first)) < len(first):
        raise Violation("two of its requests have one key", next(key for key in first if first.count(key) > 1))


@rule("marks", KIND, after=("requests",))
def marks(subject: ComponentUnderTest) -> None:
    """Its marks are numbers, and its totals too; a figure that cannot be formed is left out."""
    task = subject.build()
    asked = list(task.requests())[:8]
    if any(type(request) not in ANSWERS for request in asked):
        raise NotChecked("the kit has no answers to this kind of request; mark() needs a test of its own")
    for place in range(3):
        with report_as_violation(f"it cannot mark {ANSWERS[type(asked[0])][place]}"):
            given = [task.mark(request, ANSWERS[type(request)][place]) for request in asked]
            total = task.total(given)
        for figures in (*given, total):
            bad = [name for name, value in figures.items() if not isinstance(value, int | float) or math.isnan(value)]
            if bad:
                raise Violation(f"its figure '{bad[0]}' is no number", repr(figures[bad[0]]), "leave it out")
        if place == 0 and not total:
            raise Violation("it has no figure of a usual answer")
