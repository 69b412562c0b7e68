"""Finished sequences stop computing; their outputs equal those of a full pass at their loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.exit import Depth, Entropy, Exit, GateCdf, Kl, LogitMargin, MaxProb, StateDelta, sequence_score
from loopkit.inference import TrajectoryView, exit_early, read_nll
from loopkit.loop import PAD, Batch, Loops, Trajectory
from loopkit.model import LoopedModel
from tests.model.tiny import batch, tiny

LOOPS = 5
EXITS: list[Exit] = [LogitMargin(), MaxProb(), Entropy(), GateCdf(), Kl(), StateDelta()]
BUILDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ouro": {"carry": "readout", "gate": {"type": "linear", "reads": "readout"}},
    "huginn": {"prelude": 1, "coda": 1, "start": "normal", "injection": {"type": "concat"}},
    "final_only": {"readout": "final_only", "gate": "linear"},
}


def name(exit: Exit) -> str:
    return type(exit).__name__


@contextmanager
def core_rows(model: LoopedModel) -> Iterator[list[int]]:
    """Sequences in every call of the core, in order."""
    seen: list[int] = []
    handle = model.core.register_forward_pre_hook(lambda module, arguments: seen.append(len(arguments[0])))
    try:
        yield seen
    finally:
        handle.remove()


@contextmanager
def head_rows(model: LoopedModel) -> Iterator[list[int]]:
    """Sequences in every call of the head for dense logits."""
    seen: list[int] = []
    handle = model.head.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0].shape[-3]))
    try:
        yield seen
    finally:
        handle.remove()


def scores_of_full_pass(model: LoopedModel, rows: Batch, exit: Exit) -> Tensor:
    """``[LOOPS, B]``."""
    with torch.no_grad():
        full = TrajectoryView(model.run(rows, Loops.fixed(LOOPS)))
        return torch.stack([sequence_score(exit.score(full, k), rows) for k in range(1, LOOPS + 1)])


def a_threshold_that_splits(scores: Tensor) -> float:
    """Half-way between two scores, so that rounding changes no exit; some sequences stop before the last loop."""
    scores_read = scores[:-1]
    ordered = scores_read[scores_read.isfinite()].sort().values
    middle = len(ordered) * 2 // 3
    return float(ordered[middle - 1 : middle + 1].mean())


def first_ready(scores: Tensor, threshold: float) -> list[int]:
    depths = []
    for row in scores[:-1].T.tolist():
        ready = [k for k, value in enumerate(row, start=1) if value >= threshold]
        depths.append(ready[0] if ready else LOOPS)
    return depths


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("exit", EXITS, ids=name)
def test_predictions_equal_those_of_full_passes(build: str, exit: Exit) -> None:
    parts = {"gate": "linear"} | BUILDS[build]
    model, rows = tiny(dtype=torch.float64, **parts), batch(6, unscored=3)
    scores = scores_of_full_pass(model, rows, exit)
    threshold = a_threshold_that_splits(scores)
    exited = exit_early(model, rows, exit, LOOPS, threshold=threshold)
    assert exited.depth.tolist() == first_ready(scores, threshold)
    assert len(set(exited.depth.tolist())) > 1, "the threshold must separate the sequences"
    full = model.run(rows, Loops.fixed(LOOPS))
    costs = exit_early(model, rows, exit, LOOPS, threshold=threshold, answer=read_nll).answer
    for row, k in enumerate(exited.depth.tolist()):
        torch.testing.assert_close(exited.answer[row], full.logits(k, at=k)[row], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(costs[row], full.nll([k], at=k)[0, row], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("exit", EXITS, ids=name)
def test_extreme_thresholds_stop_first_or_last(exit: Exit) -> None:
    model, rows = tiny(gate="linear"), batch(4)
    for threshold, depth in ((-math.inf, 1), (math.inf, LOOPS)):
        with core_rows(model) as seen:
            exited = exit_early(model, rows, exit, LOOPS, threshold=threshold)
        assert exited.depth.tolist() == [depth] * 4
        assert seen == [4] * depth
        full = model.run(rows, Loops.fixed(depth)).logits(depth)
        torch.testing.assert_close(exited.answer, full)


def test_stopped_sequences_are_not_computed() -> None:
    model, rows = tiny(dtype=torch.float64), batch(6)
    scores = scores_of_full_pass(model, rows, LogitMargin())
    counted = []
    for threshold in scores[:-1].flatten().sort().values[:: len(scores) * 6 // 8].tolist():
        with core_rows(model) as core, head_rows(model) as head:
            depth = exit_early(model, rows, LogitMargin(), LOOPS, threshold=threshold).depth
        expected = [int((depth >= k).sum()) for k in range(1, int(depth.max()) + 1)]
        assert core == expected
        assert head == expected, "stopped sequences are not scored, and each loop is read once"
        counted.append(sum(core))
    assert counted == sorted(counted)
    assert counted[0] < counted[-1]


def test_nothing_is_scored_if_no_exit_is_possible() -> None:
    model, rows = tiny(), batch(3)
    with head_rows(model) as head:
        exit_early(model, rows, LogitMargin(), LOOPS, threshold=math.inf)
    assert head == [3]


def test_core_calls_fall_with_the_threshold() -> None:
    model, rows = tiny(), batch(1)
    calls = []
    scores = scores_of_full_pass(model, rows, Depth())
    for threshold in scores[:, 0].tolist():
        with core_rows(model) as core:
            exit_early(model, rows, Depth(), LOOPS, threshold=threshold)
        calls.append(len(core))
    assert calls == [1, 2, 3, 4, 5]


def test_default_threshold_is_that_of_the_exit() -> None:
    assert exit_early(tiny(), batch(2), Depth(loops=3), LOOPS).depth.tolist() == [3, 3]
    assert exit_early(tiny(), batch(2), Depth(loops=9), LOOPS).depth.tolist() == [LOOPS, LOOPS]


def test_last_sets_the_readout_loop() -> None:
    model, rows = tiny(readout="final_only"), batch(2)
    full = model.run(rows, Loops.fixed(LOOPS))
    alone = exit_early(model, rows, Depth(loops=2), LOOPS).answer
    trained = exit_early(model, rows, Depth(loops=2), LOOPS, last=lambda k: LOOPS).answer
    torch.testing.assert_close(alone, full.logits(2, at=2))
    torch.testing.assert_close(trained, full.logits(2))
    assert not torch.allclose(alone, trained)


def test_padding_does_not_change_an_exit() -> None:
    model = tiny(dtype=torch.float64)
    short = batch(1, length=7)
    tokens, positions = torch.zeros(1, 12, dtype=torch.int64), torch.full((1, 12), PAD)
    tokens[:, :7], positions[:, :7] = short.tokens, short.positions
    padded = Batch(tokens=tokens, labels=torch.full((1, 12), -100), positions=positions, sample=short.sample)
    alone = scores_of_full_pass(model, short, LogitMargin())
    torch.testing.assert_close(scores_of_full_pass(model, padded, LogitMargin()), alone, rtol=1e-6, atol=1e-6)


class NotANumber(Depth):
    """A score that is NaN."""

    def score(self, t: Trajectory, k: int) -> Tensor:
        return super().score(t, k) * math.nan


def test_nan_scores_never_trigger_an_exit() -> None:
    assert exit_early(tiny(), batch(2), NotANumber(), LOOPS, threshold=-math.inf).depth.tolist() == [LOOPS] * 2


def test_needs_at_least_one_loop() -> None:
    with pytest.raises(ValueError, match="at least one loop"):
        exit_early(tiny(), batch(2), Depth(), 0)
    with pytest.raises(ValueError, match=r"set model\.gate"):
        exit_early(tiny(), batch(2), GateCdf(), LOOPS)
