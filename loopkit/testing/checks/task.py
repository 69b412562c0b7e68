"""Tasks: unique requests, and marks and totals that are numbers."""

from __future__ import annotations

import math
from typing import Any

from loopkit.components.task import Choose, Completion, Corpus, Generate, Likelihood, OptionLikelihoods, Request
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
"""Answers to requests: a typical one, a very bad one without words and bytes, and an empty one."""


def answers_to(request: Request) -> tuple[Any, ...]:
    """Return three answers to a request, as in ``ANSWERS``; those to ``Choose`` depend on its number of options.

    Raises:
        NotChecked: If the kit has no answers to this kind of request.
    """
    if isinstance(request, Choose):
        count = len(request.options)
        values = (tuple(2.0 + i for i in range(count)), (5000.0,) * count, (0.0,) * count)
        return tuple(OptionLikelihoods(nll, (4,) * count) for nll in values)
    if type(request) not in ANSWERS:
        raise NotChecked("the kit has no answers to this kind of request; test mark() separately")
    return ANSWERS[type(request)]


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
    answers = [answers_to(request) for request in requests]
    for index in range(3):
        with report_as_violation(f"it cannot mark {answers[0][index]}"):
            marks = [task.mark(request, answer[index]) for request, answer in zip(requests, answers, strict=True)]
            total = task.total(marks)
        for values in (*marks, total):
            invalid = [
                name for name, value in values.items() if not isinstance(value, int | float) or math.isnan(value)
            ]
            if invalid:
                raise Violation(f"its value '{invalid[0]}' is not a number", repr(values[invalid[0]]), "omit it")
        if index == 0 and not total:
            raise Violation("it has no value for a typical answer")
