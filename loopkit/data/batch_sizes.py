"""Batch, micro-batch, accumulation and ranks: four numbers that must agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopkit.errors import UserError


@dataclass(frozen=True)
class BatchSizes:
    """How the sequences of one optimizer step are shared out: batch = micro · accumulation · world.

    Args:
        batch: Sequences per optimizer step, over all ranks.
        micro: Sequences per forward pass on one rank.
        accumulation: Forward passes per optimizer step on each rank.
        world: Ranks.
    """

    batch: int
    micro: int
    accumulation: int
    world: int

    @classmethod
    def of(cls, batch: int, micro: int, world: int) -> BatchSizes:
        """The sizes, if they agree.

        Raises:
            ValueError: If they do not, with the three numbers and a choice that works.
        """
        if batch % (micro * world) == 0:
            return cls(batch, micro, batch // (micro * world), world)
        numbers = f"train.batch is {batch}, train.micro_batch is {micro}, ranks are {world}"
        if batch % world:
            near = max(world * round(batch / world), world)
            remedy = f"take train.batch={near} with train.micro_batch={_fit(near // world, micro)}"
        else:
            remedy = f"take train.micro_batch={_fit(batch // world, micro)}"
        raise UserError(f"{numbers}: the batch is not a multiple of micro_batch times ranks; {remedy}")

    def rows(self, rank: int, micro_step: int) -> slice:
        """Which of the step's sequences a rank takes in a micro-step."""
        first = (micro_step * self.world + rank) * self.micro
        return slice(first, first + self.micro)


def _fit(share: int, most: int) -> int:
    """Largest divisor of a rank's share that is at most ``most``."""
    return max(size for size in range(1, share + 1) if share % size == 0 and size <= max(most, 1))


def largest_micro(batch: int, world: int, fits: Callable[[int], bool]) -> int:
    """Largest micro-batch that divides a rank's share of the batch and fits; 1 where none does.

    Args:
        batch: Sequences of an optimizer step.
        world: Ranks.
        fits: Whether a micro-batch of so many sequences fits.

    Raises:
        ValueError: If the batch cannot be shared out among the ranks.
    """
    if batch % world:
        raise UserError(
            f"train.batch is {batch}, ranks are {world}: the batch is not a multiple of the ranks; "
            f"take train.batch={max(world * round(batch / world), world)}"
        )
    share = batch // world
    return max((size for size in range(1, share + 1) if share % size == 0 and fits(size)), default=1)
