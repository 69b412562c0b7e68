"""What ranks say when one of them fails: the first to fail says it, all others end in silence."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from loopkit.training.launch import LAUNCHED, LOST_EXIT, RESUME
from loopkit.training.stop import Interrupted

_FIRST, _ENDING = "loopkit/failed_first", "loopkit/ending"
_LINGER = 3.0
_LOST_WORDS = ("gloo", "nccl", "connection closed by peer", "connection reset", "broken pipe", "timed out")


@contextmanager
def one_voice(remedy: str = RESUME) -> Iterator[None]:
    """Inside of the block an error ends this rank with one message from all ranks together, and the right exit code.

    With a single process nothing is changed: errors pass. Exit codes: 2 for what a user can mend, ``exit_code`` of the
    error where it has one, 1 for a fault of the program, ``LOST_EXIT`` where another rank went away.

    Args:
        remedy: What to do after a rank was lost, in a sentence.
    """
    try:
        yield
    except Interrupted:  # all ranks leave together, each with the same exit code
        raise
    except Exception as error:
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            raise
        code = exit_code(error)
        if _speaks(error):
            print(words_of(error, remedy), file=sys.stderr, flush=True)
        sys.stdout.flush()
        # a rank blocked in a thread of a backend would never end; everything worth keeping is on disk
        os._exit(code)


def exit_code(error: Exception) -> int:
    """The exit code that an error means."""
    if lost_contact(error):
        return LOST_EXIT
    found: Any = getattr(error, "exit_code", None)
    if isinstance(found, int):
        return found
    return 2 if isinstance(error, ValueError | OSError | LookupError) else 1


def lost_contact(error: BaseException) -> bool:
    """Whether an error only says that another rank went away."""
    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _LOST_WORDS)


def words_of(error: Exception, remedy: str = RESUME) -> str:
    """The message of a rank that failed, with its number and machine."""
    who = f"rank {os.environ.get('RANK', '0')} on {socket.gethostname()}"
    if lost_contact(error) and not dist.is_initialized():
        return f"error: {who} could not meet the other ranks: {error}"
    if lost_contact(error):
        return (
            f"error: {who} lost another rank, which was killed or cannot be reached any more; the run ends here. "
            f"{remedy}"
        )
    if exit_code(error) == 1:
        return "".join(traceback.format_exception(error)) + f"error: {who}: {type(error).__name__}: {error}"
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
    return f"error: {who}: {error}{notes}"


def _speaks(error: Exception) -> bool:
    """Whether this is the first rank to fail; it announces itself in the store in which the ranks met."""
    store = _store()
    if store is None:  # the ranks have not met: what one machine lacks is said once for it
        return os.environ.get("LOCAL_RANK", "0") == "0"
    lost = lost_contact(error)
    if lost and LAUNCHED in os.environ:
        return False  # the launcher tells how the other one ended
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
