"""What one optimizer step reads: all its sequences, the share of each rank, and the micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from loopkit.data.rows import Examples, step_sha
from loopkit.data.sampler import Sampler
from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.loop import Batch


def rank_places(batch: int, micro_batch: int, rank: int = 0, world: int = 1) -> list[range]:
    """Which of the ``batch`` places of a step a rank reads, micro-batch by micro-batch.

    Micro step ``m`` reads ``world * micro_batch`` neighbouring places, and rank ``r`` the ``r``-th part of them. So any
    number of ranks reads the same sequences in the same micro step, if ``world * micro_batch`` is the same.

    Args:
        batch: Sequences of an optimizer step over all ranks.
        micro_batch: Sequences of a forward pass on one rank.
        rank: Which rank, from 0.
        world: Number of ranks.

    Raises:
        ValueError: If the batch is not a multiple of ``world * micro_batch``.
    """
    together = world * micro_batch
    if batch % together:
        raise UserError(
            f"train.batch {batch} is not a multiple of {world} ranks times train.micro_batch {micro_batch}; "
            f"set train.batch to {max(batch // together, 1) * together}, or train.micro_batch to a divisor of "
            f"{batch // world if batch % world == 0 else f'batch / {world}'}"
        )
    first = rank * micro_batch
    return [range(m + first, m + first + micro_batch) for m in range(0, batch, together)]


@dataclass(frozen=True)
class StepData:
    """The sequences of one optimizer step.

    Args:
        examples: Where they are.
        indices: All of them over all ranks, in order.
        sample: Their places in the stream of epochs.
        places: For each micro-batch of this rank, which of them it reads.
    """

    examples: Examples
    indices: list[int]
    sample: range
    places: list[range]

    @cached_property
    def scored(self) -> int:
        """Labels that the step scores over all ranks."""
        return self.examples.scored(self.indices)

    @cached_property
    def tokens(self) -> int:
        """Real tokens of the step over all ranks."""
        return self.examples.real_tokens(self.indices)

    @cached_property
    def sha(self) -> str:
        """Digest of the sequences, the same for any number of ranks and any micro-batch."""
        return step_sha(self.examples, self.indices, self.sample)

    def batches(self) -> Iterator[Batch]:
        """This rank's micro-batches, built one by one."""
        for places in self.places:
            yield self.examples.batch([self.indices[p] for p in places], [self.sample[p] for p in places])


@dataclass(frozen=True)
class Steps:
    """The data of every optimizer step; asks for the number of the step and remembers nothing.

    Args:
        examples: What is trained on.
        sampler: Its order.
        batch: Sequences of an optimizer step over all ranks.
        micro_batch: Sequences of a forward pass on one rank.
        rank: Which rank this is, from 0.
        world: Number of ranks.
    """

    examples: Examples
    sampler: Sampler
    batch: int
    micro_batch: int
    rank: int = 0
    world: int = 1

    @property
    def accumulation(self) -> int:
        """Micro-batches that one rank reads in a step."""
        return self.batch // (self.micro_batch * self.world)

    def step(self, number: int) -> StepData:
        """The data of the step that ``number`` optimizer steps precede."""
        sample = range(number * self.batch, (number + 1) * self.batch)
        places = rank_places(self.batch, self.micro_batch, self.rank, self.world)
        return StepData(self.examples, self.sampler.indices(sample.start, self.batch), sample, places)
