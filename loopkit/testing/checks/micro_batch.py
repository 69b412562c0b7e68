"""Losses: the micro-batches of a step add up to the value of the whole batch."""

from __future__ import annotations

import torch

from loopkit.components.supervision import PerLoop
from loopkit.objective import Objective
from loopkit.testing.case import Violation, rule, saying
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.engine_run import loops_of, shares
from loopkit.testing.harness import model, run, uneven

KINDS = ("supervision", "regularizer")
TOLERANCE = 1e-5


@rule("micro-batch value", KINDS, after=("loss", "value", "padding", "seed", "own depths"))
@torch.no_grad()
def micro_batch_value(subject: ComponentUnderTest) -> None:
    """Of sequences of unequal length, the values of any micro-batches add up to that of the whole batch."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        part = subject.build(variant.options)
        if getattr(part, "mean_over", "") == "micro_batch":
            continue
        regularizer = subject.schema.kind == "regularizer"
        objective = Objective(PerLoop(), {"subject": part}) if regularizer else Objective(part)
        for number, loops in enumerate(("", ", and loops of its own for each sequence")):
            with saying(f"it breaks on sequences of unequal length{loops}{where}", _records(number)):
                whole, *others = [_value(subject, objective, size, number) for size in (4, 2, 1)]
            gap = max(abs(value - whole) for value in others)
            if gap > TOLERANCE * max(abs(whole), 1):
                seen = f"{whole:.7g} for 4 sequences at once; 2 at a time, 1 at a time: {others}"
                raise Violation(f"its value depends on the micro-batch{loops}{where}", seen, _hint(subject))


def _value(subject: ComponentUnderTest, objective: Objective, size: int, number: int) -> float:
    """The value of a step, put together as the trainer does."""
    whole, total = uneven(), 0.0
    for first in range(0, len(whole), size):
        rows = slice(first, first + size)
        t = run(model(subject).train(), whole.rows(rows), loops_of(number, rows))
        share, token_share = shares(whole, rows)
        # late enough for every regularizer to count
        outcome = objective(t, 10_000, share, token_share)
        value = outcome.regularizers.get("subject", share * outcome.supervised)
        total += value.item() * size / len(whole)
    return total


def _records(number: int) -> str:
    return "t.records[k - 1] holds the rows of t.computed[k - 1] alone; t.active(k) masks loop k" if number else ""


def _hint(subject: ComponentUnderTest) -> str:
    if subject.schema.kind == "supervision":
        return "divide a sum over scored tokens by t.batch.scored.sum(): loopkit.components.supervision.over_scored"
    return (
        'mean_over says what it is a mean over: "tokens" for over_tokens() and over_loops(), "sequences" for a mean '
        'over rows; "micro_batch" states that it depends on the micro-batch'
    )
