"""Scores of continuations: their likelihood at every depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from loopkit.components.task import Likelihood
from loopkit.evaluation.continuation.encode import Continuation, Continuations
from loopkit.evaluation.depth_sweep import DepthSweep, sweep
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.loop import Batch

if TYPE_CHECKING:
    import torch

    from loopkit.model import LoopedModel


class ContinuationBatches:
    """Batches of continuations of similar length, the longest first, so that little is padded.

    Args:
        items: The continuations.
        size: Sequences per batch; the last batch may have fewer.
        device: Where the batches go.
        pad: Token that pads rows on the right.
    """

    def __init__(self, items: Sequence[Continuation], size: int, device: torch.device, pad: int = 0) -> None:
        self.examples, self.device = Continuations(items, pad), device
        order = sorted(range(len(items)), key=lambda number: -len(items[number].tokens))
        self.rows = [order[first : first + size] for first in range(0, len(order), size)]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Batch]:
        return (self.examples.batch(rows).to(self.device) for rows in self.rows)


def score_continuations(
    model: LoopedModel,
    batches: ContinuationBatches,
    depths: Sequence[int],
    *,
    greedy: bool = False,
    shard: EvaluationShard = ALONE,
    **reading: Any,
) -> tuple[dict[int, list[Likelihood]], DepthSweep]:
    """Compute the likelihood of every continuation at every depth, from one pass if the loop allows it.

    Args:
        model: In evaluation mode.
        batches: The continuations.
        depths: In loops.
        greedy: Whether to also count the tokens that are the most likely ones.
        shard: This rank's part of the work. Every rank calls this function and receives the whole result.
        reading: ``read_as`` and ``trained``, as for ``sweep``.

    Returns:
        The answers at each depth, in the order of the continuations, and the sums of the sweep.
    """
    sums = sweep(model, shard.own(batches), depths, greedy=greedy, by_example=True, **reading)
    if num_dummy := shard.num_dummy_passes(len(batches)):
        sweep(model, islice(batches, num_dummy), depths, **reading)
    sums = shard.reduce(sums, [], depths)
    assert sums.by_example is not None
    return {depth: sums.by_example.answers(depth, ()) for depth in depths}, sums
