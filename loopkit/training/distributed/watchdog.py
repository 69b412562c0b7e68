"""Notice that a process makes no progress, write down where it stands, and end it.

A rank that waits for ever (for another that died, for a disk, for a lock) costs a whole cluster as long as nobody
looks. The watchdog is a thread; it cannot run while another one holds Python's lock inside of a C function.
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
    """Inside of the block, ``beat`` must be called at least every so many seconds.

    Args:
        seconds: How long without a beat is too long; None never is.
        file: Where the stacks of all threads are written.
        rank: Which rank this is.
        end: Ends the process; it must not need the thread that hangs.
    """

    def __init__(self, seconds: float | None, file: Path, rank: int = 0, end: Callable[[int], None] = os._exit) -> None:
        self.seconds, self.file, self.rank, self._end = seconds, file, rank, end
        self._last = time.monotonic()
        self._paused = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def beat(self) -> None:
        """There is progress."""
        self._last = time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is too long inside of the block: an evaluation takes the time that it takes."""
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
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, seconds: float) -> None:
        while not self._over.wait(min(1.0, seconds / 4)):
            waited = time.monotonic() - self._last
            if waited > seconds and not self._paused:
                self._report(waited)
                self._end(ExitCode.HUNG)
                return

    def _report(self, waited: float) -> None:
        """Say it even where the file cannot be written: a full disk may be the reason."""
        words = f"rank {self.rank} has made no progress for {waited:.0f} s (train.health.hang)"
        try:
            with self.file.open("w", encoding="utf-8") as file:
                file.write(f"{words}; the stacks of its threads:\n\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
            words += f"; its stacks are in {self.file}"
        except OSError as error:
            words += f"; its stacks could not be written: {error.strerror}"
        if claim_report():
            print(f"\nerror: {words}; the checkpoints are whole, go on with --resume", file=sys.stderr, flush=True)
