"""Reasons for which training ends before its last step."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

from loopkit.exit_codes import ExitCode


class Ended(Exception):
    """Training ended before its last step, for a reason that the user can read.

    Attributes:
        exit_code: Exit code of the command.
        resumable: Whether ``--resume`` is enough to continue.
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


class Unhealthy(Ended):
    """``train.health`` stopped the run; the weights were not updated with the faulty numbers.

    Args:
        step: The optimizer step, counted from 1.
        fault: What is wrong.
        checkpoint: The newest checkpoint, if there is one.
    """

    exit_code = ExitCode.UNHEALTHY
    remedy = "train.health offers other actions: skip_step, rewind or another limit"

    def __init__(self, step: int, fault: str, checkpoint: Path | None) -> None:
        super().__init__(f"step {step}: {fault}; {describe_checkpoint(checkpoint)}. {self.remedy}")
        self.step, self.fault, self.checkpoint = step, fault, checkpoint


class NotFinite(Unhealthy, ArithmeticError):
    """A loss, a state, a gradient or a weight is NaN or infinite."""

    remedy = (
        "Try a lower train.lr.peak, a warm-up, train.clip or a carry that bounds the state. train.precision=fp32 shows "
        "whether rounding is the cause; train.health.not_finite=skip_step or rewind continues the run"
    )


class WriteFailed(Ended):
    """A file of the run folder could not be written; earlier files are intact.

    Args:
        step: Optimizer steps done.
        what: What could not be written.
        error: The error of the system; None if it occurred on another rank.
        checkpoint: The newest checkpoint, if there is one.
    """

    exit_code = ExitCode.WRITE_FAILED
    resumable = True

    def __init__(self, step: int, what: str, error: Exception | None, checkpoint: Path | None) -> None:
        reason = "another rank could not write its part" if error is None else format_write_error(error)
        super().__init__(f"after step {step} {what} could not be written: {reason}; {describe_checkpoint(checkpoint)}")
        self.step, self.checkpoint = step, checkpoint


def describe_checkpoint(checkpoint: Path | None) -> str:
    """Describe the checkpoint from which a run can be resumed."""
    return f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was written"


def format_write_error(error: Exception) -> str:
    """Format the reason of a failed write; safetensors has the system's error in its message only."""
    if is_disk_full(error):
        return "the disk is full (or a quota is used up)"
    return getattr(error, "strerror", None) or str(error)


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed because of a full disk or a quota."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError):
        return error.errno in codes
    return any(f"(os error {code})" in str(error) for code in codes)
