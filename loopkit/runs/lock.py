"""One process at a time trains a run: two that resume it would write over each other."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from loopkit.errors import UserError, file_errors
from loopkit.runs.folder import RunFolder

LOCK = ".lock"
"""The file in a run's folder that is locked; its existence has no meaning."""


class RunBusy(UserError):
    """Another process is training this run."""


@contextmanager
def held(folder: RunFolder) -> Iterator[None]:
    """Lock a run inside of the block; the system releases it when the process ends, even if it is killed.

    Args:
        folder: The run; it exists. On a file system without locks, nothing is locked.

    Raises:
        RunBusy: If another process holds it.
    """
    with file_errors(folder.path, "written"):
        file = (folder.path / LOCK).open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise RunBusy(
                    f"another process is training {folder.path}; wait until it ends, or stop it, "
                    "then continue with --resume"
                ) from None
        yield
