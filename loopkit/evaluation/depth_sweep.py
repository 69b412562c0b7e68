"""The depth sweep: scores every depth from one pass over each batch, with sums in fp64."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from loopkit.components.probe import Probe, groups
from loopkit.errors import UserError
from loopkit.evaluation.by_example import ByExample
from loopkit.loop import Batch, LoopedModelProtocol, Loops, Trajectory

ReadAs = Literal["depth", "trained"]

_MAX_READ_TOGETHER = 8  # depths per call; larger groups only cost memory


@dataclass
class Greedy:
    """Counts of correct greedy predictions, by depth.

    Args:
        right: Scored tokens that the model ranks first.
        exact: Sequences with every scored token right.
        sequences: Sequences with a scored token; the same at every depth.
    """

    right: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    exact: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sequences: int = 0


@dataclass
class DepthSweep:
    """Sums of a depth sweep.

    Args:
        nll: Negative log-likelihood summed over the scored tokens by depth, in nats, in fp64.
        greedy: Counts of correct predictions, if requested.
        by_example: The sums of each example, if requested.
        tokens: Number of scored tokens.
        batches: Number of batches.
        core_calls: Counted core calls.
    """

    nll: dict[int, float]
    greedy: Greedy | None = None
    by_example: ByExample | None = None
    tokens: int = 0
    batches: int = 0
    core_calls: int = 0


def sweep(
    model: LoopedModelProtocol,
    batches: Iterable[Batch],
    depths: Sequence[int],
    *,
    read_as: ReadAs = "depth",
    trained: int | None = None,
    greedy: bool = False,
    by_example: bool = False,
    probes: Sequence[Probe] = (),
    progress: Callable[[int], None] = lambda batches: None,
) -> DepthSweep:
    """Score batches at every depth.

    If the loop does not depend on its length, one pass of ``max(depths)`` core calls serves all depths; otherwise
    ``plan_passes`` returns the passes. States are read while the pass runs and then dropped, so that a thousand
    depths need no more memory than eight.

    Args:
        model: In evaluation mode.
        batches: On the model's device.
        depths: Depths to read, in loops.
        read_as: ``depth`` reads loop k as the last loop of a run of k; ``trained`` reads it as a run of ``trained``
            loops does, and a loop beyond ``trained`` as the last.
        trained: Loops of training, for ``read_as="trained"``.
        greedy: Whether to count correct greedy predictions.
        by_example: Whether to keep the sums of each example.
        probes: Probes that observe the same passes.
        progress: Called with the number of batches done.
    """
    sums = {depth: torch.zeros((), dtype=torch.float64) for depth in depths}
    result = DepthSweep({}, Greedy() if greedy else None, ByExample() if by_example else None)

    def read(t: Trajectory, group: Sequence[int]) -> None:
        ats = [last_loop(depth, read_as, trained) for depth in group]
        # one transfer per group; each token's loss is converted to fp64 before the sum
        nll_KBT = t.nll(group, at=ats).double()
        nll = nll_KBT.sum(dim=(1, 2)).cpu()
        if result.by_example is not None:
            for depth, nll_B in zip(group, nll_KBT.sum(dim=2).cpu(), strict=True):
                result.by_example.nll[depth].append(nll_B)
        for depth, at, value in zip(group, ats, nll, strict=True):
            sums[depth] += value
            if result.greedy is not None:
                right_B = _count_correct(result.greedy, t, depth, at)
                if result.by_example is not None:
                    result.by_example.right[depth].append(right_B.cpu())
        observe(t, group, probes)

    with torch.no_grad(), counted_core_calls(model) as calls:
        for batch in batches:
            if result.by_example is not None:
                result.by_example.add_batch(batch)
            for group, total in plan_passes(model, depths, read_as, trained):
                run_and_read(model, batch, group, read, total)
            if result.greedy is not None:
                result.greedy.sequences += int(batch.scored.any(1).sum())
            result.tokens += int(batch.scored.sum())
            result.batches += 1
            progress(result.batches)
    result.nll = {depth: value.item() for depth, value in sums.items()}
    result.core_calls = calls[0]
    return result


class _Waiting:
    """The depths of a pass that have been run and not been read: those that it keeps."""

    def __init__(self, depths: Sequence[int], read: Callable[[Trajectory, Sequence[int]], None]) -> None:
        self.wanted, self.last, self.read = frozenset(depths), max(depths), read
        self.depths: list[int] = []

    def __contains__(self, k: object) -> bool:
        return k in self.depths

    def after_loop(self, t: Trajectory, k: int) -> Tensor | None:
        """Read what waits, when there is enough of it; all sequences stop once the last depth has been read."""
        if k in self.wanted:
            self.depths.append(k)
        if self.depths and (len(self.depths) == _MAX_READ_TOGETHER or k == self.last):
            self.read(t, self.depths)
            for depth in self.depths:
                t.drop_readouts(depth)
                if depth < k:
                    t.drop(depth)
            self.depths.clear()
        return torch.ones(len(t.batch), dtype=torch.bool) if self.last == k < t.loops.total else None


def plan_passes(
    model: LoopedModelProtocol, depths: Sequence[int], read_as: ReadAs, trained: int | None
) -> list[tuple[list[int], int]]:
    """Plan the passes for some depths: for each pass, the depths read from it and its number of loops.

    If the loop depends on its length, depths that are read as in training share a pass of the trained length; a depth
    that is read as the last loop, or that exceeds the trained length, gets its own pass.
    """
    if model.depth_free or read_as == "depth":
        return [(group, group[-1]) for group in groups(model, depths)]
    totals: dict[int, list[int]] = {}
    for depth in sorted(depths):
        totals.setdefault(last_loop(depth, read_as, trained), []).append(depth)
    return [(group, total) for total, group in totals.items()]


def format_passes(model: LoopedModelProtocol, depths: Sequence[int], read_as: ReadAs, trained: int | None) -> str:
    """Format the number of passes for results: ``one``, ``one per depth``, or a number."""
    count = len(plan_passes(model, depths, read_as, trained))
    return "one" if model.depth_free else "one per depth" if count == len(depths) else str(count)


def passes_note(read_as: ReadAs) -> str:
    """Return the note on passes for a model whose loop depends on its length."""
    passes = "each depth is a separate pass"
    if read_as == "trained":
        passes = (
            "trained depths are read from one pass of the trained length, and each deeper one from a separate pass; "
            "active probes run each depth separately"
        )
    return f"a component of this model depends on the number of loops run, so {passes}"


def run_and_read(
    model: LoopedModelProtocol,
    batch: Batch,
    depths: Sequence[int],
    read: Callable[[Trajectory, Sequence[int]], None],
    total: int | None = None,
) -> None:
    """Run one pass, and read its depths in groups while it runs.

    Args:
        model: In evaluation mode.
        batch: On the model's device.
        depths: Depths to read.
        read: Called with the pass and the depths to read of it.
        total: Nominal loops of the pass, which stops after the last depth; ``None``: the last depth.
    """
    waiting = _Waiting(depths, read)
    model.run(batch, Loops.fixed(total or waiting.last), keep=waiting, after_loop=waiting.after_loop)


def _count_correct(greedy: Greedy, t: Trajectory, depth: int, at: int) -> Tensor:
    """Count the correct tokens, and return their number in each sequence."""
    scored_BT = t.batch.scored
    right_BT = (t.predict(depth, at) == t.batch.labels) & scored_BT
    greedy.right[depth] += int(right_BT.sum())
    greedy.exact[depth] += int(((right_BT == scored_BT).all(1) & scored_BT.any(1)).sum())
    return right_BT.sum(dim=1)


def last_loop(depth: int, read_as: ReadAs, trained: int | None) -> int:
    """Return the loop that counts as the last when loop ``depth`` is read."""
    if read_as == "depth":
        return depth
    if trained is None:
        raise UserError(
            "read_as: trained needs the trained number of loops, which is unknown for this model; use read_as: depth"
        )
    return max(depth, trained)


def observe(t: Trajectory, depths: Sequence[int], probes: Sequence[Probe]) -> None:
    """Let every probe observe a pass."""
    for probe in probes:
        probe.observe(t, depths)


@contextmanager
def counted_core_calls(model: Any) -> Iterator[list[int]]:
    """Count calls of the model's core with a hook; the list contains the count."""
    calls = [0]

    def count(module: nn.Module, arguments: Any) -> None:
        calls[0] += 1

    handle = model.core.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        handle.remove()
