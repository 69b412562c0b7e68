"""Sample the number of loops of each step, micro-step or sequence."""

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
        per: Scope of one number.
        backprop: Most of the last loops that carry gradient; None: all.
        times: Times of the loops, from index of the draw and number of loops; None: evenly spaced.
    """

    counts: np.ndarray
    per: Literal["step", "micro_step", "sequence"]
    backprop: int | None
    times: Callable[[int, int], tuple[float, ...]] | None = None

    def loops(self, sizes: BatchSizes, rank: int, micro_step: int) -> Loops:
        """Return the loops of one micro-step on one rank.

        If loops are drawn per sequence, a micro-step runs the maximum over all ranks, because ranks that call a module
        a different number of times deadlock.
        """
        if self.per != "sequence":
            index = micro_step if self.per == "micro_step" else 0
            total = int(self.counts[index])
            return Loops(total, self.backprop_of(total), times=self._times(index, total))
        all_ranks = slice(sizes.rows(0, micro_step).start, sizes.rows(sizes.world - 1, micro_step).stop)
        total = int(self.counts[all_ranks].max())
        per_sequence = torch.from_numpy(self.counts[sizes.rows(rank, micro_step)].copy())
        return Loops(total, self.backprop_of(total), per_sequence, self._times(micro_step, total))

    def _times(self, index: int, total: int) -> tuple[float, ...]:
        return () if self.times is None else self.times(index, total)

    def total(self, sizes: BatchSizes) -> int:
        """Most core calls of a micro-step."""
        return max(self.loops(sizes, 0, micro_step).total for micro_step in range(sizes.accumulation))

    def max_backprop(self, sizes: BatchSizes) -> int:
        """Most loops that carry gradient in a micro-step."""
        return self.backprop_of(self.total(sizes))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """For each draw, the number of loops and the number of those that carry gradient."""
        return [(int(count), self.backprop_of(int(count))) for count in self.counts]

    @property
    def mean(self) -> float:
        """Mean number of loops of a sequence."""
        return float(self.counts.mean())

    def backprop_of(self, total: int) -> int:
        """Number of loops that carry gradient, out of ``total``."""
        return total if self.backprop is None else min(self.backprop, total)


class LoopSampler:
    """Draw the loops of an optimizer step from (seed, step).

    Args:
        schedule: The distribution.
        seed: The run's seed.
        per: Scope of one draw.
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
        """Draw the loops of the optimizer step after ``step`` finished ones."""
        count = {"step": 1, "micro_step": sizes.accumulation, "sequence": sizes.batch}[self.per]
        counts = self.schedule.draw(self._generator(step, 0), count, self.schedule.scale(step, self.num_steps))
        limits = [limit for limit in (self.backprop, self.schedule.backprop(step, self.num_steps)) if limit is not None]

        def times(index: int, total: int) -> tuple[float, ...]:
            return self.schedule.times(self._generator(step, index + 1), total)

        return LoopDraw(counts, self.per, min(limits, default=None), times)

    def _generator(self, step: int, stream: int) -> np.random.Generator:
        """Generator of one stream; the streams of a step are 2^192 numbers apart."""
        return np.random.Generator(np.random.Philox(key=[self.seed % 2**64, step], counter=[0, 0, 0, stream]))
