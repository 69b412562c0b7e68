"""Report the failure of a rank once: the first rank to fail prints it, the others exit silently."""

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

_FIRST_KEY, _EXIT_COUNT_KEY = "loopkit/failed_first", "loopkit/ending"
_STORE_WAIT_SECONDS = 3.0
_CONNECTION_ERRORS = ("gloo", "nccl", "connection closed by peer", "connection reset", "broken pipe", "timed out")


@contextmanager
def report_rank_errors(remedy: str = RESUME) -> Iterator[None]:
    """Exit after an error inside the block, with one message from all ranks together.

    In a single process errors propagate. The exit code is that of ``exit_code_of``, or ``ExitCode.LOST`` if this rank
    lost contact with another.

    Args:
        remedy: What to do after a rank was lost, as a sentence.
    """
    try:
        yield
    except Interrupted:  # all ranks exit together, with the same exit code
        raise
    except Exception as error:
        if not under_launcher():
            raise
        code = exit_code(error)
        if should_report(error, remedy):
            print(format_rank_error(error, remedy), file=sys.stderr, flush=True)
        sys.stdout.flush()
        # a normal exit could block in a thread of a backend; checkpoints are on disk
        os._exit(code)


def exit_code(error: Exception) -> int:
    """Return the exit code of an error."""
    return ExitCode.LOST if lost_contact(error) else exit_code_of(error)


def lost_contact(error: BaseException) -> bool:
    """Whether an error is only the consequence of another rank's exit."""
    if isinstance(error, dist.DistError):
        return True
    message = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in message for word in _CONNECTION_ERRORS)


def format_rank_error(error: Exception, remedy: str = RESUME) -> str:
    """Format the error of a rank, with its number and machine."""
    rank = f"rank {os.environ.get('RANK', '0')} on {socket.gethostname()}"
    if lost_contact(error) and not dist.is_initialized():
        return f"error: {rank} could not connect to the other ranks: {error}"
    if lost_contact(error):
        return (
            f"error: {rank} lost another rank, which was killed or cannot be reached any more "
            f"({_reason(error)}); the run ends here. {remedy}"
        )
    return format_error(error, rank)


def _reason(error: Exception) -> str:
    """Return the first sentence of a backend's error, without its source location."""
    message = re.sub(r"^\[\S+:\d+\] ", "", str(error).strip())
    return message.partition("\n")[0].partition(". ")[0] or type(error).__name__


def should_report(error: Exception, remedy: str) -> bool:
    """Whether this rank reports the error; ranks agree through the launcher, or through the store of the group."""
    lost = lost_contact(error)
    if REPORTS in os.environ:
        if lost:  # the launcher reports how the other rank ended
            leave_message(format_rank_error(error, remedy))
            return False
        return claim_report()
    store = _store()
    if store is None:  # the ranks are not connected: report once per machine
        return os.environ.get("LOCAL_RANK", "0") == "0"
    rank = os.environ.get("RANK", "0").encode()
    try:
        first = store.compare_set(_FIRST_KEY, "", rank.decode()) == rank
        _keep_store_alive(store)
    except Exception:  # the rank that holds the store is gone
        return not lost
    return first


def _keep_store_alive(store: Any) -> None:
    """Delay the exit of rank 0, which may hold the store, until the other ranks have read it."""
    num_exiting = store.add(_EXIT_COUNT_KEY, 1)
    deadline = time.monotonic() + _STORE_WAIT_SECONDS
    while os.environ.get("RANK") == "0" and num_exiting < dist.get_world_size() and time.monotonic() < deadline:
        time.sleep(0.05)
        num_exiting = store.add(_EXIT_COUNT_KEY, 0)


def _store() -> Any:
    if not dist.is_initialized():
        return None
    from torch.distributed.distributed_c10d import _get_default_store

    store = _get_default_store()
    store.set_timeout(timedelta(seconds=5))
    return store
