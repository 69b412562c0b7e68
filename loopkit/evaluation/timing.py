"""Throughput at each depth, measured by separate runs because one pass of a sweep serves all depths."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from loopkit.evaluation.depth_sweep import ReadAs, last_loop
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
    """Measure the throughput of a run of exactly k loops that scores the last loop, for each depth k.

        tokens_per_s = real tokens of the batches / median seconds over the repeats

    The depths alternate, so that a slowdown of the machine affects all of them. One untimed batch warms up each depth.

    Args:
        model: In evaluation mode.
        batches: Batches to run, on the model's device.
        depths: In loops.
        read_as: As in the sweep.
        trained: As in the sweep.
        repeats: Number of timed runs of every depth.
    """
    tokens = sum(int((batch.positions < PAD).sum()) for batch in batches)
    seconds: dict[int, list[float]] = {depth: [] for depth in depths}
    with torch.no_grad():
        for depth in depths:
            _run(model, batches[:1], depth, last_loop(depth, read_as, trained))
        for _ in range(repeats):
            for depth in depths:
                started = time.perf_counter()
                _run(model, batches, depth, last_loop(depth, read_as, trained))
                seconds[depth].append(time.perf_counter() - started)
    return {depth: tokens / statistics.median(durations) for depth, durations in seconds.items()}


def _run(model: LoopedModelProtocol, batches: Sequence[Batch], depth: int, at: int) -> None:
    for batch in batches:
        model.run(batch, Loops.fixed(depth), keep=frozenset([depth])).nll([depth], at=at)
    if batches[0].device.type == "cuda":
        torch.cuda.synchronize()
