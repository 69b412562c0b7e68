"""Tokens per second at each depth, by running each depth alone: a one-pass sweep cannot time a depth."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from loopkit.evaluation.depth_sweep import ReadAs, reading
from loopkit.loop import PAD, Batch, LoopedModelProtocol, Loops


def tokens_per_s(
    model: LoopedModelProtocol,
    batches: Sequence[Batch],
    depths: Sequence[int],
    *,
    read_as: ReadAs = "depth",
    trained: int | None = None,
    repeats: int = 3,
) -> dict[int, float]:
    """Time a run of exactly k loops that reads and scores its last one, for each depth k.

        tokens_per_s = real tokens of the batches / median seconds over the repeats

    The depths take turns, so that a machine that slows down slows all of them. One untimed batch warms each depth up.

    Args:
        model: In evaluation mode.
        batches: What is run, on the model's device.
        depths: In loops.
        read_as: As in the sweep.
        trained: As in the sweep.
        repeats: Times that every depth is run.
    """
    tokens = sum(int((batch.positions < PAD).sum()) for batch in batches)
    seconds: dict[int, list[float]] = {depth: [] for depth in depths}
    with torch.no_grad():
        for depth in depths:
            _run(model, batches[:1], depth, reading(depth, read_as, trained))
        for _ in range(repeats):
            for depth in depths:
                started = time.perf_counter()
                _run(model, batches, depth, reading(depth, read_as, trained))
                seconds[depth].append(time.perf_counter() - started)
    return {depth: tokens / statistics.median(taken) for depth, taken in seconds.items()}


def _run(model: LoopedModelProtocol, batches: Sequence[Batch], depth: int, at: int) -> None:
    for batch in batches:
        model.run(batch, Loops.fixed(depth), keep=frozenset([depth])).nll([depth], at=at)
    if batches[0].device.type == "cuda":
        torch.cuda.synchronize()
