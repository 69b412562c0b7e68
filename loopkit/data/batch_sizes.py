"""Batch, micro-batch, accumulation and ranks: the partition of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopkit.errors import UserError


@dataclass(frozen=True)
class BatchSizes:
    """The partition of an optimizer step among ranks and micro-steps: batch = micro · accumulation · world.

    Micro-step m reads ``world * micro`` consecutive sequences, of which rank r reads the r-th part. Any number of ranks
    therefore reads the same sequences in the same micro-step, if ``world * micro`` is the same.

    Args:
        batch: Sequences per optimizer step, over all ranks.
        micro: Sequences per forward pass on one rank.
        accumulation: Forward passes per optimizer step on each rank.
        world: Number of ranks.
    """

    batch: int
    micro: int
    accumulation: int
    world: int

    @classmethod
    def of(cls, batch: int, micro: int, world: int) -> BatchSizes:
        """Compute the accumulation.

        Raises:
            UserError: If micro · world does not divide the batch; the message suggests sizes that work.
        """
        if batch % (micro * world) == 0:
            return cls(batch, micro, batch // (micro * world), world)
        numbers = f"train.batch is {batch}, train.micro_batch is {micro}, ranks are {world}"
        near = max(world * round(batch / world), world)
        remedy = f"train.micro_batch={largest_micro(near, world, lambda size: size <= micro)}"
        remedy = f"set {remedy}" if near == batch else f"set train.batch={near} with {remedy}"
        raise UserError(f"{numbers}: the batch is not a multiple of micro_batch times ranks; {remedy}")

    def rows(self, rank: int, micro_step: int) -> slice:
        """Return the slice of the step's sequences that a rank reads in a micro-step."""
        first = (micro_step * self.world + rank) * self.micro
        return slice(first, first + self.micro)


def largest_micro(batch: int, world: int, fits: Callable[[int], bool]) -> int:
    """Find the largest micro-batch that divides a rank's share of the batch and fits; 1 if none does.

    Args:
        batch: Sequences of an optimizer step.
        world: Number of ranks.
        fits: Whether a micro-batch of this many sequences fits.

    Raises:
        UserError: If the number of ranks does not divide the batch.
    """
    if batch % world:
        raise UserError(
            f"train.batch is {batch}, ranks are {world}: the batch is not a multiple of the ranks; "
            f"set train.batch={max(world * round(batch / world), world)}"
        )
    share = batch // world
    return max((size for size in range(1, share + 1) if share % size == 0 and fits(size)), default=1)
