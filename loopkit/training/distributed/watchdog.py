"""Detect a process that makes no progress, write the stacks of its threads, and end it.

A rank that waits forever (for a dead rank, a disk, a lock) blocks a whole cluster. The watchdog is a thread; it cannot
run while another thread holds the GIL inside a C function.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from loopkit.exit_codes import ExitCode
from loopkit.training.distributed.launch import claim_report


class Watchdog:
    """End the process if ``beat`` is not called for ``seconds`` inside the block.

    Args:
        seconds: Maximum time between two beats; None: no limit.
        file: Receives the stacks of all threads.
        rank: This rank.
        end: Ends the process; it must not depend on the thread that hangs.
    """

    def __init__(self, seconds: float | None, file: Path, rank: int = 0, end: Callable[[int], None] = os._exit) -> None:
        self.seconds, self.file, self.rank, self._end = seconds, file, rank, end
        self._last = time.monotonic()
        self._paused = 0
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None

    def beat(self) -> None:
        """Report progress."""
        self._last = time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the limit inside the block, for evaluations."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            self.beat()

    def __enter__(self) -> Watchdog:
        if self.seconds is not None:
            self.beat()
            self._thread = threading.Thread(target=self._watch, args=(self.seconds,), name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, seconds: float) -> None:
        while not self._finished.wait(min(1.0, seconds / 4)):
            elapsed = time.monotonic() - self._last
            if elapsed > seconds and not self._paused:
                self._report(elapsed)
                self._end(ExitCode.HUNG)
                return

    def _report(self, elapsed: float) -> None:
        """Write the stacks and print a message, even if the file cannot be written: the disk may be full."""
        message = f"rank {self.rank} has made no progress for {elapsed:.0f} s (train.health.hang)"
        try:
            with self.file.open("w", encoding="utf-8") as file:
                file.write(f"{message}; the stacks of its threads:\n\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
            message += f"; its stacks are in {self.file}"
        except OSError as error:
            message += f"; its stacks could not be written: {error.strerror}"
        if claim_report():
            print(
                f"\nerror: {message}; the checkpoints are complete, continue with --resume", file=sys.stderr, flush=True
            )
