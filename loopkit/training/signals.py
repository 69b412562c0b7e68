"""SIGINT and SIGTERM during training."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class EvaluationStopped(Exception):
    """A signal arrived during an evaluation. The evaluation is dropped; the run resumes without it."""


class Signals:
    """Record the first SIGINT or SIGTERM inside the block; the second exits at once.

    Attributes:
        received: The signal that requests the end of training, or None.
    """

    HANDLED = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous_handlers: dict[int, Any] = {}
        self._raise = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise SystemExit(128 + signum)
        self.received = signum
        if self._raise:
            raise EvaluationStopped

    @contextmanager
    def stopping_evaluation(self) -> Iterator[None]:
        """Raise ``EvaluationStopped`` inside the block as soon as a signal arrives."""
        if self.received is not None:
            raise EvaluationStopped
        self._raise = True
        try:
            yield
        finally:
            self._raise = False

    def __enter__(self) -> Signals:
        # Python allows handlers in the main thread only; a program that trains in another thread handles signals itself
        if threading.current_thread() is threading.main_thread():
            self._previous_handlers = {signum: signal.signal(signum, self._handle) for signum in self.HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._previous_handlers.items():
            signal.signal(signum, handler)
