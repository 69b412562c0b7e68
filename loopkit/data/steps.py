"""The sequences of each optimizer step and their micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from loopkit.data.batch_sizes import BatchSizes
from loopkit.data.rows import Examples, step_sha
from loopkit.data.sampler import Sampler

if TYPE_CHECKING:
    from loopkit.loop import Batch


@dataclass(frozen=True)
class StepData:
    """The sequences of one optimizer step.

    Args:
        examples: The dataset.
        indices: All sequences of the step over all ranks, in order.
        sample: Their positions in the stream of epochs.
        parts: Slices of ``indices``, one for each micro-batch of this rank.
    """

    examples: Examples
    indices: list[int]
    sample: range
    parts: list[slice]

    @cached_property
    def scored(self) -> int:
        """Number of scored labels of the step over all ranks."""
        return self.examples.scored(self.indices)

    @cached_property
    def tokens(self) -> int:
        """Number of tokens of the step over all ranks, without padding."""
        return self.examples.real_tokens(self.indices)

    @cached_property
    def sha(self) -> str:
        """Digest of the sequences, the same for any number of ranks and any micro-batch."""
        return step_sha(self.examples, self.indices, self.sample)

    def batches(self) -> Iterator[Batch]:
        """Yield this rank's micro-batches, built one by one."""
        for part in self.parts:
            yield self.examples.batch(self.indices[part], self.sample[part])


@dataclass(frozen=True)
class Steps:
    """The data of every optimizer step, by the number of the step; stateless.

    Args:
        examples: The dataset.
        sampler: The order of its sequences.
        sizes: Batch, micro-batch, accumulation and ranks.
        rank: This rank, from 0.
    """

    examples: Examples
    sampler: Sampler
    sizes: BatchSizes
    rank: int = 0

    def step(self, number: int) -> StepData:
        """Return the data of step ``number``, from 0."""
        batch = self.sizes.batch
        sample = range(number * batch, (number + 1) * batch)
        parts = [self.sizes.rows(self.rank, micro_step) for micro_step in range(self.sizes.accumulation)]
        return StepData(self.examples, self.sampler.indices(sample.start, batch), sample, parts)
