"""The base class of errors that a user can fix."""

from __future__ import annotations


class UserError(ValueError):
    """An error that a user can fix: the command line prints its message without a traceback and exits with code 2.

    The message states what is wrong, with the value, where it is, and how to fix it. Every other exception is a bug in
    loopkit or in a component; the command line shows its traceback. It is a ``ValueError`` so that pydantic collects
    it when a component raises it while its options are checked.
    """
