"""Exits: a score for each token that depends only on the loops up to k."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.loop import Batch, Trajectory
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LENGTH, LOOPS, ROWS, default_model, random_batch, run_model
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND = ("exit",)


def scores(subject: ComponentUnderTest, batch: Batch | None = None) -> Tensor:
    """Scores of every loop of one finished pass, ``[K, B, T]``."""
    exit_rule, t = subject.build(), run_model(default_model(subject), random_batch() if batch is None else batch)
    return torch.stack([exit_rule.score(t, k) for k in range(1, LOOPS + 1)])


@rule("declares", KIND, after=("builds",))
def declares(subject: ComponentUnderTest) -> None:
    """It has a threshold."""
    for variant in subject.variants:
        exit_rule = subject.build(variant.options)
        if not isinstance(getattr(exit_rule, "threshold", None), int | float):
            raise Violation(
                "it has no threshold", repr(getattr(exit_rule, "threshold", None)), "self.threshold = threshold"
            )


@rule("score", KIND, after=("declares",))
@torch.no_grad()
def score(subject: ComponentUnderTest) -> None:
    """Its score of each token is fp32, and finite or minus infinity."""
    exit_rule, t = subject.build(), run_model(default_model(subject), random_batch())
    for k in range(1, LOOPS + 1):
        with report_as_violation(
            f"it returns no score of loop {k}", "a score that compares with an earlier loop is minus infinity at loop 1"
        ):
            values = exit_rule.score(t, k)
        if values.shape != (ROWS, LENGTH) or values.dtype != torch.float32:
            raise Violation(f"its score of loop {k} is not fp32 [B, T]", f"{values.dtype} {list(values.shape)}")
        if values.isnan().any() or (values == torch.inf).any():
            raise Violation(f"its score of loop {k} is NaN or infinite")
        if values.isneginf().all() and k == LOOPS:
            raise Violation("no token can exit: its score is minus infinity at the last loop")


@rule("loops so far", KIND, after=("score",))
@torch.no_grad()
def loops_so_far(subject: ComponentUnderTest) -> None:
    """Its score of loop k depends only on loops up to k."""
    exit_rule, online_scores = subject.build(), []
    hint = "read t.logits(j), t.state(j), t.gate(j) for j <= k; not t.reached, not t.loops.total"

    def record_score(t: Trajectory, k: int) -> None:
        online_scores.append(exit_rule.score(t, k).clone())

    with report_as_violation("it reads a loop that has not run yet", hint):
        run_model(default_model(subject), random_batch(), after_loop=record_score)
    changed = run_model(default_model(subject), random_batch(), intervene=lambda s, k: s if k < LOOPS else s * 3 + 1)
    complete = scores(subject)
    for k, online in enumerate(online_scores[: LOOPS - 1], 1):
        for offline in (complete[k - 1], exit_rule.score(changed, k)):
            if not torch.allclose(online, offline, rtol=1e-4, atol=1e-5):
                raise Violation(f"its score of loop {k} depends on later loops", hint=hint)


@rule("batch", KIND, after=("score",))
@torch.no_grad()
def batch(subject: ComponentUnderTest) -> None:
    """The scores of a sequence depend neither on its batch nor on earlier calls."""
    data = random_batch()
    parts = torch.cat([scores(subject, exit_rule) for exit_rule in data.split(1)], dim=1)
    if not torch.allclose(parts, scores(subject, data), rtol=1e-4, atol=1e-4):
        raise Violation("the score of a sequence depends on its batch", hint="look for a mean over dimension 0")
    exit_rule, first, other = (
        subject.build(),
        run_model(default_model(subject), data),
        run_model(default_model(subject), random_batch(seed=1)),
    )
    before = exit_rule.score(first, 2)
    exit_rule.score(other, 2)
    if not torch.equal(exit_rule.score(first, 2), before):
        raise Violation("it keeps state between calls", hint="compute a score only from t and k")
