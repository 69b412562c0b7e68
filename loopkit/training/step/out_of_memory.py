"""A device that has not enough memory: which smaller micro-batch to try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from loopkit.data.batch_sizes import BatchSizes, largest_micro
from loopkit.exit_codes import ExitCode
from loopkit.recipe import Recipe
from loopkit.training.errors import Ended, kept


class OutOfMemory(Ended):
    """A step or an evaluation needed more memory than there is.

    Args:
        where: What needed it.
        remedy: What to try.
        checkpoint: The newest checkpoint, if there is one.
    """

    exit_code = ExitCode.OUT_OF_MEMORY

    def __init__(self, where: str, remedy: str, checkpoint: Path | None) -> None:
        super().__init__(f"{where}: there is not enough memory; {remedy}. {kept(checkpoint)}")
        self.remedy, self.checkpoint = remedy, checkpoint


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception is an allocator's, on a GPU or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # the CPU allocator, and CUDA where its own error comes through another library, raise a plain RuntimeError
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


@contextmanager
def explained(where: str, remedy: str, checkpoint: Path | None) -> Iterator[None]:
    """Turn an allocator's error inside of the block into ``OutOfMemory``; others pass as they are."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise OutOfMemory(where, remedy, checkpoint) from error
        raise


def smaller_step(recipe: Recipe, sizes: BatchSizes) -> str:
    """What to try where an optimizer step needs too much memory."""
    now = f"the micro-batch is {sizes.micro}"
    if sizes.micro > 1:
        fits = largest_micro(sizes.batch, sizes.world, lambda micro: micro <= sizes.micro // 2)
        remedy = f"{now}: try --set train.micro_batch={fits}"
        if recipe.train.loops_per == "micro_step":
            return f"{remedy} under another --name, because loops are drawn for each micro-step"
        return f"{remedy}, which gives the same run but for rounding"
    if not recipe.train.checkpointing:
        return f"{now} already: try --set train.checkpointing=true, which keeps one loop at a time"
    most = "try a shorter data.length, fewer loops in train.backprop, or ZeRO"
    return f"{now} already, and train.checkpointing is on: {most}"
