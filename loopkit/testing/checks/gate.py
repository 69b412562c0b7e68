"""Gates that end sequences in training: a decision for each sequence, which follows from the seed."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.loop import Trajectory
from loopkit.testing.case import NotChecked, Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, ROWS, compute_loss, default_model, random_batch, run_model


@rule("stops", ("gate",), after=("gradient",))
def stops(subject: ComponentUnderTest) -> None:
    """It says for each sequence what stops in training, by the seed alone, and the number of core calls stays."""
    around = default_model(subject).train()
    if not around.stops:
        raise NotChecked("it stops nothing in training")
    calls: list[int] = []
    around.core.register_forward_hook(lambda *_: calls.append(1))
    answers = [_answers(subject, seed) for seed in (1, 2)]
    for k, answer in enumerate(answers[0], 1):
        if answer is not None and (answer.dtype != torch.bool or list(answer.shape) != [ROWS]):
            seen = f"{answer.dtype} {list(answer.shape)} after loop {k}, not torch.bool [{ROWS}]"
            raise Violation("stop() gives no answer for each sequence", seen, "return a [B] bool tensor, or None")
    same = [a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in zip(*answers, strict=True)]
    if not all(same):
        hint = "draw from t.noise.fold(...), which is keyed by seed, step, sample and position"
        raise Violation("what it stops does not follow from the seed", f"after loop {same.index(False) + 1}", hint)
    with report_as_violation("a loss breaks where it has stopped sequences"):
        compute_loss(run_model(around, random_batch())).backward()
    if len(calls) != LOOPS:
        raise Violation("a pass in which it stops sequences makes fewer core calls", f"{len(calls)}, not {LOOPS}")


def _answers(subject: ComponentUnderTest, seed: int) -> list[Tensor | None]:
    """What it says after each loop of one pass."""
    found: list[Tensor | None] = []
    around = default_model(subject).train()
    stop = around.gate.stop

    def noting(t: Trajectory, k: int) -> Tensor | None:
        found.append(stop(t, k))
        return found[-1]

    around.gate.stop = noting  # type: ignore[method-assign]
    run_model(around, random_batch(), seed=seed)
    return found
