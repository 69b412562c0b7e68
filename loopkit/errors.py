"""The base class of errors that a user can fix."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(ValueError):
    """An error that a user can fix: the command line prints its message without a traceback and exits with code 2.

    The message states what is wrong, with the value, where it is, and how to fix it. Every other exception is a bug in
    loopkit or in a component; the command line shows its traceback. It is a ``ValueError`` so that pydantic collects
    it when a component raises it while its options are checked.
    """


class FileError(UserError, OSError):
    """The system refused to read or write a file or folder that the user named; ``errno`` is the reason."""


_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of the path is a file; check the path",
    errno.EISDIR: "name a file",
    errno.EEXIST: "choose another name",
    errno.ENOTEMPTY: "choose another name",
    errno.EACCES: "change its permissions, or choose another path",
    errno.EPERM: "change its permissions, or choose another path",
    errno.EROFS: "choose a path on another disk",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
}


@contextmanager
def file_errors(path: str | Path, action: str, remedy: str = "") -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``FileError``.

    Args:
        path: The file or folder, as the user named it.
        action: Past participle of the operation, such as ``"read"`` or ``"written"``.
        remedy: How to fix it; by default it follows from the error.

    Raises:
        FileError: ``PATH cannot be READ: reason; remedy``.
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        remedy = remedy or _REMEDIES.get(error.errno or 0, "check the disk")
        reason = error.strerror or str(error) or type(error).__name__
        problem = FileError(f"{path} cannot be {action}: {reason[0].lower()}{reason[1:]}; {remedy}")
        problem.errno = error.errno
        raise problem from error
