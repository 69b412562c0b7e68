"""The depth sweep: every depth read from one pass of a batch, each scored token counted once, sums in fp64."""

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

_AT_ONCE = 8  # depths that are read together; more would only cost memory


@dataclass
class Greedy:
    """How often the likeliest token is the right one, by depth.

    Args:
        right: Scored tokens.
        exact: Sequences whose every scored token is right.
        sequences: Sequences that have a scored token, at any depth.
    """

    right: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    exact: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sequences: int = 0


@dataclass
class DepthSweep:
    """Sums of a depth sweep.

    Args:
        nll: Negative log-likelihood summed over the scored tokens by depth, in nats, in fp64.
        greedy: What the likeliest tokens were worth, where asked for.
        by_example: The same for each example, where asked for.
        tokens: Scored tokens.
        batches: Batches seen.
        core_calls: Core calls counted.
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

    Where the loop does not depend on its length, one pass of ``max(depths)`` core calls serves all depths; else
    ``passes_for`` says how many there are. States are read while the pass runs and then dropped, so that a thousand
    depths need no more memory than eight.

    Args:
        model: In evaluation mode.
        batches: On the model's device.
        depths: Depths to read, in loops.
        read_as: ``depth`` reads loop k as the last one of a run of k, ``trained`` as a run of ``trained`` loops reads
            it (a loop beyond that as the last).
        trained: Loops of training, for ``read_as="trained"``.
        greedy: Whether to count where the likeliest token is the right one.
        by_example: Whether to keep the sums of each example.
        probes: Measured on the same passes.
        progress: Called with the number of batches done.
    """
    sums = {depth: torch.zeros((), dtype=torch.float64) for depth in depths}
    found = DepthSweep({}, Greedy() if greedy else None, ByExample() if by_example else None)

    def read(t: Trajectory, group: Sequence[int]) -> None:
        ats = [reading(depth, read_as, trained) for depth in group]
        # one transfer per group; each token's loss is widened before it is added
        nll_KBT = t.nll(group, at=ats).double()
        nll = nll_KBT.sum(dim=(1, 2)).cpu()
        if found.by_example is not None:
            for depth, nll_B in zip(group, nll_KBT.sum(dim=2).cpu(), strict=True):
                found.by_example.nll[depth].append(nll_B)
        for depth, at, value in zip(group, ats, nll, strict=True):
            sums[depth] += value
            if found.greedy is not None:
                right_B = _count(found.greedy, t, depth, at)
                if found.by_example is not None:
                    found.by_example.right[depth].append(right_B.cpu())
        observe(t, group, probes)

    with torch.no_grad(), counted_core_calls(model) as calls:
        for batch in batches:
            if found.by_example is not None:
                found.by_example.begin(batch)
            for group, total in passes_for(model, depths, read_as, trained):
                run_and_read(model, batch, group, read, total)
            if found.greedy is not None:
                found.greedy.sequences += int(batch.scored.any(1).sum())
            found.tokens += int(batch.scored.sum())
            found.batches += 1
            progress(found.batches)
    found.nll = {depth: value.item() for depth, value in sums.items()}
    found.core_calls = calls[0]
    return found


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
        if self.depths and (len(self.depths) == _AT_ONCE or k == self.last):
            self.read(t, self.depths)
            for depth in self.depths:
                t.drop_readouts(depth)
                if depth < k:
                    t.drop(depth)
            self.depths.clear()
        return torch.ones(len(t.batch), dtype=torch.bool) if self.last == k < t.loops.total else None


def passes_for(
    model: LoopedModelProtocol, depths: Sequence[int], read_as: ReadAs, trained: int | None
) -> list[tuple[list[int], int]]:
    """The passes that serve some depths: for each, the depths that are read from it and its number of loops.

    Where the loop depends on its length, depths that are read as training read them share a pass of as many loops as
    training ran; a depth that is read as the last loop, or lies beyond those of training, has a pass of its own.
    """
    if model.depth_free or read_as == "depth":
        return [(group, group[-1]) for group in groups(model, depths)]
    totals: dict[int, list[int]] = {}
    for depth in sorted(depths):
        totals.setdefault(reading(depth, read_as, trained), []).append(depth)
    return [(group, total) for total, group in totals.items()]


def spell_passes(model: LoopedModelProtocol, depths: Sequence[int], read_as: ReadAs, trained: int | None) -> str:
    """How many passes serve some depths, as results have it: ``one``, ``one per depth``, or a number."""
    count = len(passes_for(model, depths, read_as, trained))
    return "one" if model.depth_free else "one per depth" if count == len(depths) else str(count)


def passes_note(read_as: ReadAs) -> str:
    """What a reader should know of the passes where the loop depends on its length."""
    what = "each depth is a pass of its own"
    if read_as == "trained":
        what = (
            "depths up to those of training are read from one pass of as many loops, each one beyond from a pass of "
            "its own; probes that make passes of their own run each depth alone"
        )
    return f"a component of this model depends on the number of loops run, so {what}"


def run_and_read(
    model: LoopedModelProtocol,
    batch: Batch,
    depths: Sequence[int],
    read: Callable[[Trajectory, Sequence[int]], None],
    total: int | None = None,
) -> None:
    """One pass, whose depths are read a few at a time while it runs.

    Args:
        model: In evaluation mode.
        batch: On the model's device.
        depths: Depths to read.
        read: Called with the pass and the depths to read of it.
        total: Loops of the pass, of which those after the last depth are not computed; ``None``: up to the last depth.
    """
    waiting = _Waiting(depths, read)
    model.run(batch, Loops.fixed(total or waiting.last), keep=waiting, after_loop=waiting.after_loop)


def _count(greedy: Greedy, t: Trajectory, depth: int, at: int) -> Tensor:
    """Count the tokens that are right, and return how many each sequence has."""
    scored_BT = t.batch.scored
    right_BT = (t.predict(depth, at) == t.batch.labels) & scored_BT
    greedy.right[depth] += int(right_BT.sum())
    greedy.exact[depth] += int(((right_BT == scored_BT).all(1) & scored_BT.any(1)).sum())
    return right_BT.sum(dim=1)


def reading(depth: int, read_as: ReadAs, trained: int | None) -> int:
    """The loop that counts as the last when loop ``depth`` is read."""
    if read_as == "depth":
        return depth
    if trained is None:
        raise UserError("read_as 'trained' needs to know the loops of training, which this model does not tell")
    return max(depth, trained)


def observe(t: Trajectory, depths: Sequence[int], probes: Sequence[Probe]) -> None:
    """Show a pass to the probes."""
    for probe in probes:
        probe.observe(t, depths)


@contextmanager
def counted_core_calls(model: Any) -> Iterator[list[int]]:
    """Count calls of the model's core, by a hook on it; the number stands in the list."""
    calls = [0]

    def count(module: nn.Module, arguments: Any) -> None:
        calls[0] += 1

    handle = model.core.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        handle.remove()
