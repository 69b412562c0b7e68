"""``loopkit`` as one of two ranks that is killed, or loses its connections, at a stage of its run.

``BREAK=STAGE:HOW:RANK python -m tests.training.broken_ranks train ...`` is one rank, started by ``launch``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from importlib import import_module
from typing import Any

STAGES = {
    "joining": ("loopkit.training.train", "join"),
    "preparing data": ("loopkit.training.train", "prepare"),
    "engine start": ("loopkit.training.build", "build_engine"),
    "first step": ("loopkit.training.trainer", "Trainer.step"),
    "evaluation": ("loopkit.training.evaluation_hook", "EvaluationHook._evaluate"),
    "writing a checkpoint": ("loopkit.training.checkpointing.checkpoint_policy", "CheckpointPolicy.save"),
    "end": ("loopkit.training.session", "Session.__exit__"),
}
"""Start of each stage: the rank fails before this function."""


def kill() -> None:
    """Kill this rank as the out-of-memory killer does."""
    os.kill(os.getpid(), signal.SIGKILL)


def sever() -> None:
    """Close every connection of this rank, which then fails on both ranks."""
    import torch.distributed as dist

    if not dist.is_initialized():
        raise dist.DistNetworkError("the connection was refused")
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername():
                connection.shutdown(socket.SHUT_RDWR)


HOW: dict[str, Callable[[], None]] = {"kill": kill, "sever": sever}


def main() -> None:
    stage, how, ranks = os.environ["BREAK"].split(":")
    if os.environ["RANK"] in ranks:
        module_name, path = STAGES[stage]
        owner: Any = import_module(module_name)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        real = getattr(owner, name)

        def broken(*args: Any, **options: Any) -> Any:
            HOW[how]()
            return real(*args, **options)

        setattr(owner, name, broken)
    from loopkit.cli.main import main as loopkit

    loopkit(prog_name="loopkit")


if __name__ == "__main__":
    main()
