"""Timing early exit against fixed depths: every contender runs and scores the same batches, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from loopkit.components.exit import Exit
from loopkit.inference import exit_early, read_nll
from loopkit.loop import Batch, LoopedModelProtocol, Loops

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Scored:
    """One run over all batches.

    Args:
        nll: Negative log-likelihood summed over the scored tokens, in nats, in fp64.
        depth: ``[N]`` int64, loops that each sequence ran.
    """

    nll: float
    depth: Tensor


Contender = Callable[[], Scored]
"""Runs and scores all batches; it has finished when it returns."""


def fixed(model: LoopedModelProtocol, batches: Sequence[Batch], depth: int, last: Callable[[int], int]) -> Contender:
    """Run exactly ``depth`` loops and score the last one."""
    count = sum(len(batch) for batch in batches)

    def run() -> Scored:
        total = torch.zeros((), dtype=torch.float64, device=batches[0].device)
        with torch.no_grad():
            for batch in batches:
                t = model.run(batch, Loops.fixed(depth), keep=frozenset([depth]))
                total += t.nll([depth], at=last(depth)).double().sum()
        return Scored(total.item(), torch.full((count,), depth))  # ``item`` waits for the device

    return run


def dynamic(
    model: LoopedModelProtocol,
    batches: Sequence[Batch],
    exit: Exit,
    threshold: float,
    loops: int,
    last: Callable[[int], int],
) -> Contender:
    """Run with early exit, and score each sequence where it stopped."""

    def run() -> Scored:
        total = torch.zeros((), dtype=torch.float64, device=batches[0].device)
        depths = []
        for batch in batches:
            exited = exit_early(model, batch, exit, loops, threshold=threshold, last=last, answer=read_nll)
            total += exited.answer.double().sum()
            depths.append(exited.depth)
        return Scored(total.item(), torch.cat(depths).cpu())

    return run


@dataclass
class ContenderTiming:
    """What a contender did.

    Args:
        scored: Of its first run, which is not timed.
        core_calls: Calls of the core in that run, counted.
        core_sequences: Sequences in these calls together, counted.
        seconds: Of every timed run.
    """

    scored: Scored
    core_calls: int
    core_sequences: int
    seconds: list[float] = field(default_factory=list)

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)


def race(
    model: LoopedModelProtocol,
    contenders: Mapping[Key, Contender],
    repeats: int,
    progress: Callable[[str], None] = lambda doing: None,
) -> dict[Key, ContenderTiming]:
    """Run each contender once to warm up and be counted, then time all of them in turns.

    A machine that slows down slows all of them; every other turn goes in the opposite order, so that none always runs
    in the wake of the same one.

    Args:
        model: What they run, for counting calls of its core.
        contenders: By name.
        repeats: Timed runs of each.
        progress: Called with what is being done, in words.
    """
    found: dict[Key, ContenderTiming] = {}
    for name, contender in contenders.items():
        progress(f"warming up: {name}")
        with _counted(model) as sizes:
            scored = contender()
        found[name] = ContenderTiming(scored, len(sizes), sum(sizes))
    for turn in range(repeats):
        for name in list(contenders)[:: -1 if turn % 2 else 1]:
            progress(f"timing {turn + 1} of {repeats}: {name}")
            started = time.perf_counter()
            contenders[name]()
            found[name].seconds.append(time.perf_counter() - started)
    return found


@contextmanager
def _counted(model: Any) -> Iterator[list[int]]:
    """Sequences in every call of the model's core, by a hook on it."""
    sizes: list[int] = []

    def count(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        sizes.append(len(given[0]))

    handle = model.core.register_forward_pre_hook(count)
    try:
        yield sizes
    finally:
        handle.remove()
