"""Ways in which training ends early, and the signals that ask for it."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from loopkit.exit_codes import ExitCode


class Ended(Exception):
    """Training ended before its last step, for a reason that a user should read.

    Attributes:
        exit_code: What the command line returns.
        resumable: Whether going on as before is all there is to do.
    """

    exit_code: int = ExitCode.FAILED
    resumable: bool = False


class Interrupted(Ended):
    """A signal ended the run after a checkpoint was written.

    Args:
        signum: The signal.
        step: Optimizer steps done.
        checkpoint: The checkpoint.
    """

    resumable = True

    def __init__(self, signum: int, step: int, checkpoint: Path) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} after step {step}; saved {checkpoint}")
        self.signum, self.step, self.checkpoint = signum, step, checkpoint
        self.exit_code = 128 + signum


class EvaluationStopped(Exception):
    """A signal came during an evaluation, which is dropped: nothing of it is needed to go on."""


class Unhealthy(Ended):
    """``train.health`` stopped the run; nothing was updated with the numbers at fault.

    Args:
        step: The optimizer step, counted from 1.
        fault: What is wrong.
        checkpoint: The newest checkpoint, if there is one.
    """

    exit_code = ExitCode.UNHEALTHY
    remedy = "train.health says what else may be done about it: skip_step, rewind or another limit"

    def __init__(self, step: int, fault: str, checkpoint: Path | None) -> None:
        super().__init__(f"step {step}: {fault}; {kept(checkpoint)}. {self.remedy}")
        self.step, self.fault, self.checkpoint = step, fault, checkpoint


class NotFinite(Unhealthy, ArithmeticError):
    """A loss, a state, a gradient or a weight stopped being a number."""

    remedy = (
        "A lower train.lr.peak, a warm-up, train.clip or a carry that bounds the state usually help; "
        "train.precision=fp32 tells whether it was rounding; train.health.not_finite=skip_step or rewind goes on"
    )


class WriteFailed(Ended):
    """The run folder could not be written to; what was there before is untouched.

    Args:
        step: Optimizer steps done.
        what: What could not be written.
        error: What the system said; None where it happened on another rank.
        checkpoint: The newest checkpoint, if there is one.
    """

    exit_code = ExitCode.WRITE_FAILED
    resumable = True

    def __init__(self, step: int, what: str, error: Exception | None, checkpoint: Path | None) -> None:
        reason = "another rank could not write its part" if error is None else reason_of(error)
        super().__init__(f"after step {step} {what} could not be written: {reason}; {kept(checkpoint)}")
        self.step, self.checkpoint = step, checkpoint


def kept(checkpoint: Path | None) -> str:
    """Which checkpoint there is to go on from, in words."""
    return f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint had been written yet"


def reason_of(error: Exception) -> str:
    """Why a write failed, in words; safetensors says the system's error in its text only."""
    if disk_full(error):
        return "the disk is full (or a quota is used up)"
    return getattr(error, "strerror", None) or str(error)


def disk_full(error: BaseException) -> bool:
    """Whether a write failed for want of room."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError):
        return error.errno in codes
    return any(f"(os error {code})" in str(error) for code in codes)


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
