"""Writing on several ranks at once: what fails on one of them fails on all, at the same place."""

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
    """Fill a folder together. A rank whose write fails goes on as far as the next ``agree``, where all of them stop:
    so none waits for another that has gone.

    Args:
        process: Which rank this is.
        folder: What is filled; removed by the first rank where anything failed, because a full disk needs the room.
        step: Optimizer steps done.
        what: What is written, in words.
        checkpoint: The newest checkpoint, if there is one.
    """

    def __init__(self, process: Process, folder: Path, *, step: int, what: str, checkpoint: Path | None) -> None:
        self.process, self.folder = process, folder
        self.step, self.what, self.checkpoint = step, what, checkpoint
        self.error: Exception | None = None

    def here(self, write: Callable[..., Any], *args: Any) -> None:
        """Write something on this rank."""
        if self.error is None:
            try:
                write(*args)
            except (OSError, SafetensorError) as error:
                self.error = error

    def first(self, write: Callable[..., Any], *args: Any) -> None:
        """Write something on the first rank."""
        if self.process.first:
            self.here(write, *args)

    def agree(self) -> None:
        """Wait for all ranks.

        Raises:
            WriteFailed: On every rank, if a write failed on any.
        """
        if not self.process.any(self.error is not None):
            return
        if self.process.first:
            with suppress(OSError):  # it has no name that counts, and the next attempt removes it
                remove_folder(self.folder)
        raise WriteFailed(self.step, self.what, self.error, self.checkpoint) from self.error
