"""Tasks: unique requests, and marks and totals that are numbers."""

from __future__ import annotations

import math
from typing import Any

from loopkit.components.task import Completion, Corpus, Generate, Likelihood
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import NotChecked, Violation, report_as_violation, rule

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
"""Answers to every kind of request: a typical one, a very bad one without words and bytes, and an empty one."""


@rule("requests", KIND, after=("builds",))
def requests(subject: ComponentUnderTest) -> None:
    """It yields at least one request, the same ones each time, with unique keys."""
    with report_as_violation("requests() fails"):
        first, repeated = ([r.key for r in subject.build().requests()] for _ in range(2))
    if not first:
        raise Violation("it yields no requests")
    if first != repeated:
        raise Violation("it does not yield the same requests each time", f"{first[:3]} and {repeated[:3]}")
    if len(set(first)) < len(first):
        raise Violation("two of its requests have the same key", next(key for key in first if first.count(key) > 1))


@rule("marks", KIND, after=("requests",))
def marks_(subject: ComponentUnderTest) -> None:
    """Its marks and totals are numbers; values that cannot be computed are omitted."""
    task = subject.build()
    requests = list(task.requests())[:8]
    if any(type(request) not in ANSWERS for request in requests):
        raise NotChecked("the kit has no answers to this kind of request; test mark() separately")
    for index in range(3):
        with report_as_violation(f"it cannot mark {ANSWERS[type(requests[0])][index]}"):
            marks = [task.mark(request, ANSWERS[type(request)][index]) for request in requests]
            total = task.total(marks)
        for values in (*marks, total):
            invalid = [
                name for name, value in values.items() if not isinstance(value, int | float) or math.isnan(value)
            ]
            if invalid:
                raise Violation(f"its value '{invalid[0]}' is not a number", repr(values[invalid[0]]), "omit it")
        if index == 0 and not total:
            raise Violation("it has no value for a typical answer")
