"""Shared parts of the studies of killed runs."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def is_writing(checkpoints: Path, since: int) -> bool:
    """Whether an incomplete checkpoint has changed since then; earlier kills may leave others.

    Args:
        checkpoints: The run's folder of them.
        since: Nanoseconds of the clock that files are dated by.
    """
    for path in checkpoints.glob(".step-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime_ns > since:
                return True
    return False


def run_study(study: Callable[..., Any], description: str | None, *, kills: int, writing: int) -> None:
    """Run a study from the command line; print its observations and duration.

    Args:
        study: Takes a recipe, a folder, and ``kills``, ``writing`` and ``seed``.
        description: Text of ``--help``.
        kills: Default number of kills.
        writing: Default number of kills while a checkpoint is being written.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--writing", type=int, default=writing)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from tests.training.conftest import write_recipe

    with tempfile.TemporaryDirectory() as home:
        recipe = write_recipe(Path(home))
        start_time = time.monotonic()
        print(study(recipe, Path(home), kills=options.kills, writing=options.writing, seed=options.seed))
        print(f"{time.monotonic() - start_time:.0f} s")
