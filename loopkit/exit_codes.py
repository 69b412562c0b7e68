"""Every exit code of the command line with its meaning: the code, ``train --help`` and the docs use this table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code.

    Attributes:
        meaning: Why a command ends with it, in a phrase.
    """

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done"
    FAILED = (
        1,
        "a bug, with its traceback; a finding of audit --strict or migrate --check; a failed run of sweep or reproduce",
    )
    USER_ERROR = 2, "an error that you can fix: in the recipe, the data, a file or an option"
    UNHEALTHY = 3, "train.health stopped the run: a value is not finite, the state is too large, or the loss jumped"
    HUNG = 4, "no progress for train.health.hang seconds; stack traces are in the run folder"
    WRITE_FAILED = 5, "the run folder could not be written: the disk is full"
    OUT_OF_MEMORY = 6, "out of memory; the message proposes a micro-batch"
    LOST = 7, "the connection between ranks was lost"
    INTERRUPTED = 130, "interrupted by Ctrl-C; train has saved a checkpoint"
    KILLED = 137, "a rank was killed by SIGKILL, often because memory ran out"
    PIPE_CLOSED = 141, "the reader of a pipe closed it, as head does"
    TERMINATED = 143, "ended by SIGTERM; train has saved a checkpoint"
