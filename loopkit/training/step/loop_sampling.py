"""How many loops each step, micro-step or sequence runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from loopkit.components.schedule import Schedule
from loopkit.data.batch_sizes import BatchSizes
from loopkit.loop import Loops


@dataclass(frozen=True)
class LoopDraw:
    """The loops of one optimizer step, the same on every rank.

    Args:
        counts: int64, one number for the step, for each micro-step, or for each sequence of the batch.
        per: What one number serves.
        backprop: Most of the last loops that carry gradient; None: all.
        times: Where so many loops lie in time, by micro-step and their number; None: evenly.
    """

    counts: np.ndarray
    per: Literal["step", "micro_step", "sequence"]
    backprop: int | None
    times: Callable[[int, int], tuple[float, ...]] | None = None

    def loops(self, sizes: BatchSizes, rank: int, micro_step: int) -> Loops:
        """The loops of one micro-step on one rank.

        A micro-step of sequences with loops of their own runs to the largest over all ranks, because ranks that run a
        module a different number of times wait for each other forever.
        """
        if self.per != "sequence":
            drawn = micro_step if self.per == "micro_step" else 0
            total = int(self.counts[drawn])
            return Loops(total, self.backprop_of(total), times=self._times(drawn, total))
        everyone = slice(sizes.rows(0, micro_step).start, sizes.rows(sizes.world - 1, micro_step).stop)
        total = int(self.counts[everyone].max())
        own = torch.from_numpy(self.counts[sizes.rows(rank, micro_step)].copy())
        return Loops(total, self.backprop_of(total), own, self._times(micro_step, total))

    def _times(self, drawn: int, total: int) -> tuple[float, ...]:
        return () if self.times is None else self.times(drawn, total)

    def total(self, sizes: BatchSizes) -> int:
        """Most core calls of a micro-step."""
        return max(self.loops(sizes, 0, micro_step).total for micro_step in range(sizes.accumulation))

    def most_backprop(self, sizes: BatchSizes) -> int:
        """Most loops that carry gradient in a micro-step."""
        return self.backprop_of(self.total(sizes))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Of each draw, how many loops run and how many of them carry gradient."""
        return [(int(count), self.backprop_of(int(count))) for count in self.counts]

    @property
    def mean(self) -> float:
        """Mean number of loops of a sequence."""
        return float(self.counts.mean())

    def backprop_of(self, total: int) -> int:
        """How many of so many loops carry gradient."""
        return total if self.backprop is None else min(self.backprop, total)


class LoopSampler:
    """Draw the loops of any optimizer step from (seed, step) alone.

    Args:
        schedule: The distribution.
        seed: The run's seed.
        per: What one draw serves.
        backprop: Most of the last loops that carry gradient, or ``"all"``.
        num_steps: Optimizer steps of the run, for curricula.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        seed: int,
        per: Literal["step", "micro_step", "sequence"],
        backprop: int | Literal["all"],
        num_steps: int,
    ) -> None:
        self.schedule, self.seed, self.per, self.num_steps = schedule, seed, per, num_steps
        self.backprop = None if backprop == "all" else backprop

    def draw(self, step: int, sizes: BatchSizes) -> LoopDraw:
        """The loops of the optimizer step that follows ``step`` finished ones."""
        count = {"step": 1, "micro_step": sizes.accumulation, "sequence": sizes.batch}[self.per]
        counts = self.schedule.draw(self._generator(step, 0), count, self.schedule.scale(step, self.num_steps))
        limits = [limit for limit in (self.backprop, self.schedule.backprop(step, self.num_steps)) if limit is not None]

        def times(drawn: int, total: int) -> tuple[float, ...]:
            return self.schedule.times(self._generator(step, drawn + 1), total)

        return LoopDraw(counts, self.per, min(limits, default=None), times)

    def _generator(self, step: int, stream: int) -> np.random.Generator:
        """Streams of one step lie 2^192 numbers apart."""
        return np.random.Generator(np.random.Philox(key=[self.seed % 2**64, step], counter=[0, 0, 0, stream]))
