"""Exits: a score of each token, from the loops so far."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.loop import Batch, Trajectory
from loopkit.testing.case import Violation, rule, saying
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LENGTH, LOOPS, ROWS, model, run, tokens

KIND = ("exit",)


def scores(subject: ComponentUnderTest, batch: Batch | None = None) -> Tensor:
    """Scores of every loop of one finished pass, ``[K, B, T]``."""
    part, t = subject.build(), run(model(subject), tokens() if batch is None else batch)
    return torch.stack([part.score(t, k) for k in range(1, LOOPS + 1)])


@rule("declares", KIND, after=("builds",))
def declares(subject: ComponentUnderTest) -> None:
    """It has a threshold, and says whether tokens or sequences stop."""
    for variant in subject.variants:
        part = subject.build(variant.options)
        if not isinstance(getattr(part, "threshold", None), int | float):
            raise Violation("it has no threshold", repr(getattr(part, "threshold", None)), "self.threshold = threshold")
        if getattr(part, "level", None) not in ("token", "sequence"):
            raise Violation("its level is neither 'token' nor 'sequence'", repr(getattr(part, "level", None)))


@rule("score", KIND, after=("declares",))
@torch.no_grad()
def score(subject: ComponentUnderTest) -> None:
    """Its score is fp32 for each token, and a number or minus infinity."""
    part, t = subject.build(), run(model(subject), tokens())
    for k in range(1, LOOPS + 1):
        with saying(f"it gives no score of loop {k}", "what compares with an earlier loop gives minus infinity at 1"):
            found = part.score(t, k)
        if found.shape != (ROWS, LENGTH) or found.dtype != torch.float32:
            raise Violation(f"its score of loop {k} is not fp32 [B, T]", f"{found.dtype} {list(found.shape)}")
        if found.isnan().any() or (found == torch.inf).any():
            raise Violation(f"its score of loop {k} is NaN or infinite")
        if found.isneginf().all() and k == LOOPS:
            raise Violation("nobody is ever ready: its score is minus infinity at every loop")


@rule("loops so far", KIND, after=("score",))
@torch.no_grad()
def loops_so_far(subject: ComponentUnderTest) -> None:
    """Its score of loop k looks at loops up to k alone."""
    part, live = subject.build(), []
    hint = "read t.logits(j), t.state(j), t.gate(j) for j <= k; not t.reached, not t.loops.total"

    def record_score(t: Trajectory, k: int) -> None:
        live.append(part.score(t, k).clone())

    with saying("it looks at a loop that has not run yet", hint):
        run(model(subject), tokens(), after_loop=record_score)
    later = run(model(subject), tokens(), intervene=lambda s, k: s if k < LOOPS else s * 3 + 1)
    whole = scores(subject)
    for k, here in enumerate(live[: LOOPS - 1], 1):
        for other in (whole[k - 1], part.score(later, k)):
            if not torch.allclose(here, other, rtol=1e-4, atol=1e-5):
                raise Violation(f"its score of loop {k} changes with later loops", hint=hint)


@rule("batch", KIND, after=("score",))
@torch.no_grad()
def batch(subject: ComponentUnderTest) -> None:
    """A sequence's scores do not depend on its batch, nor on what was scored before."""
    data = tokens()
    parts = torch.cat([scores(subject, part) for part in data.split(1)], dim=1)
    if not torch.allclose(parts, scores(subject, data), rtol=1e-4, atol=1e-4):
        raise Violation("a sequence's score depends on its batch", hint="look for a mean over dimension 0")
    part, first, other = subject.build(), run(model(subject), data), run(model(subject), tokens(seed=1))
    before = part.score(first, 2)
    part.score(other, 2)
    if not torch.equal(part.score(first, 2), before):
        raise Violation("it keeps state between calls", hint="a score is a function of (t, k) alone")
