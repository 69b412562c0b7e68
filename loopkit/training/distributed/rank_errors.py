"""What ranks say when one of them fails: the first to fail says it, all others end in silence."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from loopkit.error_report import exit_code_of, format_error
from loopkit.exit_codes import ExitCode
from loopkit.training.distributed.launch import REPORTS, RESUME, claim_report, leave_message, under_launcher
from loopkit.training.errors import Interrupted

_FIRST, _ENDING = "loopkit/failed_first", "loopkit/ending"
_LINGER = 3.0
_LOST_WORDS = ("gloo", "nccl", "connection closed by peer", "connection reset", "broken pipe", "timed out")


@contextmanager
def report_rank_errors(remedy: str = RESUME) -> Iterator[None]:
    """Inside of the block an error ends this rank with one message from all ranks together, and the right exit code.

    With a single process nothing is changed: errors pass. The exit code is that of ``exit_code_of``, or
    ``ExitCode.LOST`` if another rank went away.

    Args:
        remedy: What to do after a rank was lost, in a sentence.
    """
    try:
        yield
    except Interrupted:  # all ranks leave together, each with the same exit code
        raise
    except Exception as error:
        if not under_launcher():
            raise
        code = exit_code(error)
        if should_report(error, remedy):
            print(format_rank_error(error, remedy), file=sys.stderr, flush=True)
        sys.stdout.flush()
        # a rank blocked in a thread of a backend would never end; everything worth keeping is on disk
        os._exit(code)


def exit_code(error: Exception) -> int:
    """The exit code that an error means."""
    return ExitCode.LOST if lost_contact(error) else exit_code_of(error)


def lost_contact(error: BaseException) -> bool:
    """Whether an error only says that another rank went away."""
    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _LOST_WORDS)


def format_rank_error(error: Exception, remedy: str = RESUME) -> str:
    """The message of a rank that failed, with its number and machine."""
    who = f"rank {os.environ.get('RANK', '0')} on {socket.gethostname()}"
    if lost_contact(error) and not dist.is_initialized():
        return f"error: {who} could not meet the other ranks: {error}"
    if lost_contact(error):
        return (
            f"error: {who} lost another rank, which was killed or cannot be reached any more "
            f"({_reason(error)}); the run ends here. {remedy}"
        )
    return format_error(error, who)


def _reason(error: Exception) -> str:
    """The first sentence of a backend's error, without the place in its source."""
    text = re.sub(r"^\[\S+:\d+\] ", "", str(error).strip())
    return text.partition("\n")[0].partition(". ")[0] or type(error).__name__


def should_report(error: Exception, remedy: str) -> bool:
    """Whether this is the first rank to fail; it announces itself to the launcher, or in the store where ranks met."""
    lost = lost_contact(error)
    if REPORTS in os.environ:
        if lost:  # the launcher knows how the other one ended
            leave_message(format_rank_error(error, remedy))
            return False
        return claim_report()
    store = _store()
    if store is None:  # the ranks have not met: what one machine lacks is said once for it
        return os.environ.get("LOCAL_RANK", "0") == "0"
    rank = os.environ.get("RANK", "0").encode()
    try:
        first = store.compare_set(_FIRST, "", rank.decode()) == rank
        _linger(store)
    except Exception:  # whoever held the store is gone
        return not lost
    return first


def _linger(store: Any) -> None:
    """Rank 0 may hold the store: the others get a moment to look into it, since most errors are the same on all."""
    ended = store.add(_ENDING, 1)
    deadline = time.monotonic() + _LINGER
    while os.environ.get("RANK") == "0" and ended < dist.get_world_size() and time.monotonic() < deadline:
        time.sleep(0.05)
        ended = store.add(_ENDING, 0)


def _store() -> Any:
    if not dist.is_initialized():
        return None
    from torch.distributed.distributed_c10d import _get_default_store

    store = _get_default_store()
    store.set_timeout(timedelta(seconds=5))
    return store
