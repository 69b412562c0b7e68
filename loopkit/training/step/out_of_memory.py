"""Report that a device ran out of memory, and suggest a smaller micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from loopkit.data.batch_sizes import BatchSizes, largest_micro
from loopkit.exit_codes import ExitCode
from loopkit.recipe import Recipe
from loopkit.training.errors import Ended, describe_checkpoint


class OutOfMemory(Ended):
    """A step or an evaluation ran out of memory.

    Args:
        where: The step or evaluation.
        remedy: What to try.
        checkpoint: The newest checkpoint, if there is one.
    """

    exit_code = ExitCode.OUT_OF_MEMORY

    def __init__(self, where: str, remedy: str, checkpoint: Path | None) -> None:
        super().__init__(f"{where}: there is not enough memory; {remedy}. {describe_checkpoint(checkpoint)}")
        self.remedy, self.checkpoint = remedy, checkpoint


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception comes from the allocator of a GPU or of the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # the CPU allocator, and CUDA errors that pass through another library, raise a plain RuntimeError
    message = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in message or "out of memory" in message)


@contextmanager
def explain_out_of_memory(where: str, remedy: str, checkpoint: Path | None) -> Iterator[None]:
    """Convert an allocator's error inside the block to ``OutOfMemory``; other errors pass unchanged."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise OutOfMemory(where, remedy, checkpoint) from error
        raise


def suggest_smaller_step(recipe: Recipe, sizes: BatchSizes) -> str:
    """Suggest a setting that reduces the memory of an optimizer step."""
    current = f"the micro-batch is {sizes.micro}"
    if sizes.micro > 1:
        fits = largest_micro(sizes.batch, sizes.world, lambda micro: micro <= sizes.micro // 2)
        remedy = f"{current}: try --set train.micro_batch={fits}"
        if recipe.train.loops_per == "micro_step":
            return f"{remedy} under another --name, because loops are drawn for each micro-step"
        return f"{remedy}, which gives the same run but for rounding"
    if not recipe.train.checkpointing:
        return f"{current} already: try --set train.checkpointing=true, which keeps one loop at a time"
    remedy = "try a shorter data.length, fewer loops in train.backprop, or ZeRO"
    return f"{current} already, and train.checkpointing is on: {remedy}"
