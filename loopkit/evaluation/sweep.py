"""The depth sweep: every depth read from one pass of a batch, each scored token counted once, sums in fp64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from loopkit.components.probe import Probe, passes
from loopkit.loop import Batch, LoopedModel, Trajectory

ReadAs = Literal["depth", "trained"]

_AT_ONCE = 8  # depths whose losses are formed together; more would only cost memory


@dataclass
class Sweep:
    """Sums of a depth sweep.

    Args:
        nll: Negative log-likelihood summed over the scored tokens by depth, in nats, in fp64.
        tokens: Scored tokens.
        batches: Batches seen.
        core_calls: Core calls counted.
    """

    nll: dict[int, float]
    tokens: int = 0
    batches: int = 0
    core_calls: int = 0


def sweep(
    model: LoopedModel,
    batches: Iterable[Batch],
    depths: Sequence[int],
    *,
    read_as: ReadAs = "depth",
    trained: int | None = None,
    probes: Sequence[Probe] = (),
    progress: Callable[[int], None] = lambda batches: None,
) -> Sweep:
    """Score batches at every depth.

    Where the loop does not depend on its length, one pass of ``max(depths)`` core calls serves all depths; else there
    is a pass for each depth.

    Args:
        model: In evaluation mode.
        batches: On the model's device.
        depths: Depths to read, in loops.
        read_as: ``depth`` reads loop k as the last one of a run of k, ``trained`` as a run of ``trained`` loops reads
            it (a loop beyond that as the last).
        trained: Loops of training, for ``read_as="trained"``.
        probes: Measured on the same passes.
        progress: Called with the number of batches done.
    """
    sums = {depth: torch.zeros((), dtype=torch.float64) for depth in depths}
    found = Sweep({})
    with torch.no_grad(), counted_core_calls(model) as calls:
        for batch in batches:
            for t, served in passes(model, batch, depths):
                for group in _groups(served):
                    ats = [reading(depth, read_as, trained) for depth in group]
                    # one transfer per group; each token's loss is widened before it is added
                    nll = t.nll(group, at=ats).double().sum(dim=(1, 2)).cpu()
                    for depth, value in zip(group, nll, strict=True):
                        sums[depth] += value
                observe(t, served, probes)
            found.tokens += int(batch.scored.sum())
            found.batches += 1
            progress(found.batches)
    found.nll = {depth: value.item() for depth, value in sums.items()}
    found.core_calls = calls[0]
    return found


def reading(depth: int, read_as: ReadAs, trained: int | None) -> int:
    """The loop that counts as the last when loop ``depth`` is read."""
    if read_as == "depth":
        return depth
    if trained is None:
        raise ValueError("read_as 'trained' needs to know the loops of training, which this model does not tell")
    return max(depth, trained)


def observe(t: Trajectory, depths: Sequence[int], probes: Sequence[Probe]) -> None:
    """Show a pass to the probes."""
    for probe in probes:
        probe.observe(t, depths)


def _groups(depths: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(depths), _AT_ONCE):
        yield depths[first : first + _AT_ONCE]


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
