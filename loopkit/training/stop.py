"""Ways in which training ends early, and the signals that ask for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

NOT_FINITE_EXIT = 3
"""Exit code of a run that stopped because a number was not finite; a signal gives 128 plus its number."""


class Interrupted(Exception):
    """A signal ended the run after a checkpoint was written.

    Args:
        signum: The signal.
        step: Optimizer steps done.
        checkpoint: The checkpoint.
    """

    def __init__(self, signum: int, step: int, checkpoint: Path) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} after step {step}; saved {checkpoint}")
        self.signum, self.step, self.checkpoint = signum, step, checkpoint
        self.exit_code = 128 + signum


class EvaluationStopped(Exception):
    """A signal came during an evaluation, which is dropped: nothing of it is needed to go on."""


class NotFinite(ArithmeticError):
    """A loss, a state or a gradient stopped being a number; nothing was updated with it.

    Args:
        step: The optimizer step, counted from 1.
        fault: What is not finite, and at which loop.
        checkpoint: The newest checkpoint, if there is one.
    """

    exit_code = NOT_FINITE_EXIT

    def __init__(self, step: int, fault: str, checkpoint: Path | None) -> None:
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint had been written yet"
        super().__init__(
            f"step {step}: {fault}; {kept}. A lower train.lr.peak, a warm-up, train.clip or a carry that bounds the "
            "state usually help; train.precision=fp32 tells whether it was rounding"
        )
        self.step, self.fault, self.checkpoint = step, fault, checkpoint


class Signals:
    """Turn the first SIGINT or SIGTERM into a wish, and the second into an immediate end.

    Attributes:
        wanted: The signal that asked training to stop, or None.
    """

    CAUGHT = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.wanted: int | None = None
        self._before: dict[int, Any] = {}
        self._at_once = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.wanted is not None:
            raise SystemExit(128 + signum)
        self.wanted = signum
        if self._at_once:
            raise EvaluationStopped

    @contextmanager
    def stopping_at_once(self) -> Iterator[None]:
        """Inside of the block the first signal raises ``EvaluationStopped`` instead of waiting to be noticed."""
        if self.wanted is not None:
            raise EvaluationStopped
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def __enter__(self) -> Signals:
        # Python allows handlers in the main thread only; a program that trains in another one owns the signals itself
        if threading.current_thread() is threading.main_thread():
            self._before = {signum: signal.signal(signum, self._handle) for signum in self.CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
