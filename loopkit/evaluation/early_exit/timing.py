"""Timing of early exit against fixed depths: the contenders alternate on the same batches."""

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
"""Runs and scores all batches; it waits for the device before it returns."""


def fixed(model: LoopedModelProtocol, batches: Sequence[Batch], depth: int, last: Callable[[int], int]) -> Contender:
    """Build the contender that runs exactly ``depth`` loops and scores the last one."""
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
    """Build the contender that exits early and scores each sequence at the loop where it stopped."""

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
    """The runs of a contender.

    Args:
        scored: Scores of its first run, which is not timed.
        core_calls: Counted core calls of that run.
        core_sequences: Counted sequences in these calls.
        seconds: Duration of every timed run.
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
    progress: Callable[[str], None] = lambda message: None,
) -> dict[Key, ContenderTiming]:
    """Run each contender once for warm-up and counting, then time all of them in turns.

    A slowdown of the machine affects all contenders. Every second turn reverses their order, so that none always
    follows the same one.

    Args:
        model: Their model, whose core calls are counted.
        contenders: Contenders by name.
        repeats: Timed runs of each contender.
        progress: Called with a message about the current stage.
    """
    result: dict[Key, ContenderTiming] = {}
    for name, contender in contenders.items():
        progress(f"warming up: {name}")
        with _counted_sequences(model) as sizes:
            scored = contender()
        result[name] = ContenderTiming(scored, len(sizes), sum(sizes))
    for turn in range(repeats):
        for name in list(contenders)[:: -1 if turn % 2 else 1]:
            progress(f"timing {turn + 1} of {repeats}: {name}")
            started = time.perf_counter()
            contenders[name]()
            result[name].seconds.append(time.perf_counter() - started)
    return result


@contextmanager
def _counted_sequences(model: Any) -> Iterator[list[int]]:
    """Record the number of sequences in every call of the model's core with a hook."""
    sizes: list[int] = []

    def count(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        sizes.append(len(args[0]))

    handle = model.core.register_forward_pre_hook(count)
    try:
        yield sizes
    finally:
        handle.remove()
