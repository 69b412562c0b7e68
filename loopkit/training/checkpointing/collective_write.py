"""Write files on several ranks; a failure on one rank is raised on all ranks at the same point."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from loopkit.runs.atomic import remove_folder
from loopkit.training.distributed.process_group import Process
from loopkit.training.errors import WriteFailed


class CollectiveWrite:
    """Fill a folder from several ranks.

    A rank whose write fails continues to the next ``check``, where all ranks raise, so that none waits for another.

    Args:
        process: This rank.
        folder: The folder; removed after a failure, because a full disk needs the space.
        step: Optimizer steps done.
        what: Name of what is written, for the message.
        checkpoint: The newest checkpoint, if there is one.
    """

    def __init__(self, process: Process, folder: Path, *, step: int, what: str, checkpoint: Path | None) -> None:
        self.process, self.folder = process, folder
        self.step, self.what, self.checkpoint = step, what, checkpoint
        self.error: Exception | None = None

    def on_this_rank(self, write: Callable[..., Any], *args: Any) -> None:
        """Call a function on this rank, unless an earlier one failed."""
        if self.error is None:
            try:
                write(*args)
            except (OSError, SafetensorError) as error:
                self.error = error

    def on_first_rank(self, write: Callable[..., Any], *args: Any) -> None:
        """Call a function on the first rank."""
        if self.process.first:
            self.on_this_rank(write, *args)

    def check(self) -> None:
        """Wait for all ranks, and raise if a write failed.

        Raises:
            WriteFailed: On every rank, if a write failed on any rank.
        """
        if not self.process.any(self.error is not None):
            return
        if self.process.first:
            with suppress(OSError):  # a partial folder is ignored, and removed by the next write
                remove_folder(self.folder)
        raise WriteFailed(self.step, self.what, self.error, self.checkpoint) from self.error
