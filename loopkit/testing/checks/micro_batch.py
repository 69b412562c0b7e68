"""Losses: the values of the micro-batches of a step add up to the value of the batch."""

from __future__ import annotations

import torch

from loopkit.components.supervision import PerLoop
from loopkit.objective import Objective
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import default_model, run_model, uneven_batch
from loopkit.testing.rules import Violation, report_as_violation, rule
from loopkit.testing.training_run import loops_in_step, token_shares

KINDS = ("supervision", "regularizer")
TOLERANCE = 1e-5


@rule("micro-batch value", KINDS, after=("loss", "value", "padding", "seed", "own depths", "loops"))
@torch.no_grad()
def micro_batch_value(subject: ComponentUnderTest) -> None:
    """With sequences of unequal length, the values of the micro-batches add up to the value of the batch."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        part = subject.build(variant.options)
        if getattr(part, "mean_over", "") == "micro_batch":
            continue
        regularizer = subject.schema.kind == "regularizer"
        objective = Objective(PerLoop(), {"subject": part}) if regularizer else Objective(part)
        steps = ("",) if subject.traits.get("uses_total") else ("", " and different loops")
        for step, loops in enumerate(steps):
            with report_as_violation(f"it fails on sequences of unequal length{loops}{where}", _records_hint(step)):
                expected, *values = [_value(subject, objective, size, step) for size in (4, 2, 1)]
            gap = max(abs(value - expected) for value in values)
            if gap > TOLERANCE * max(abs(expected), 1):
                seen = f"{expected:.7g} for 4 sequences at once; 2 and 1 at a time: {values}"
                raise Violation(f"its value depends on the micro-batch{loops}{where}", seen, _hint(subject, step))


def _value(subject: ComponentUnderTest, objective: Objective, size: int, step: int) -> float:
    """The value of an optimizer step, computed as the trainer does."""
    batch, total = uneven_batch(), 0.0
    for first in range(0, len(batch), size):
        rows = slice(first, first + size)
        model = default_model(subject).train()
        t = run_model(model, batch.rows(rows), loops_in_step(subject, model, step, rows))
        share, token_share = token_shares(batch, rows)
        # at step 10,000 every regularizer is active
        outcome = objective(t, 10_000, share, token_share)
        value = outcome.regularizers.get("subject", share * outcome.supervised)
        total += value.item() * size / len(batch)
    return total


def _records_hint(step: int) -> str:
    return (
        "t.records[k - 1] holds only the rows of t.computed[k - 1]; t.active(k) marks the sequences that ran loop k"
        if step
        else ""
    )


def _hint(subject: ComponentUnderTest, step: int) -> str:
    if step:
        return (
            "for another pass of the same sequences, use t.rerun() or t.step(), not t.model.run(); with the loops of "
            "each sequence, t.active(k) and t.own_loop(k); state uses_total=True if it is intended"
        )
    if subject.schema.kind == "supervision":
        return "divide a sum over scored tokens by t.batch.scored.sum(): loopkit.components.supervision.over_scored"
    return (
        'mean_over states the unit of the mean: "tokens" for over_tokens() and over_loops(), "sequences" for a mean '
        'over rows; "micro_batch" states that it depends on the micro-batch'
    )
