"""Initial weights from another run (``train.start_from``)."""

from __future__ import annotations

import warnings
from pathlib import Path

from loopkit.errors import UserError
from loopkit.model import LoopedModel, load_weights
from loopkit.runs.checkpoint import WEIGHTS, Checkpoint, newest_checkpoint, step_of
from loopkit.runs.folder import RunFolder
from loopkit.runs.manifest import MANIFEST


def find_weights(path: Path) -> Path:
    """Find the weights file that a path denotes.

    Args:
        path: A weights file, a checkpoint or imported folder with one, or a run with a complete checkpoint.

    Raises:
        UserError: If there is none.
        CheckpointProblem: If a checkpoint is not complete.
    """
    if path.is_file():
        return path
    if (path / MANIFEST).is_file() and (step := step_of(path)) is not None:
        return Checkpoint(path, step).check().path / WEIGHTS
    if (path / WEIGHTS).is_file():
        return path / WEIGHTS
    run = RunFolder(path)
    if run.checkpoints.is_dir():
        newest, damaged = newest_checkpoint(run.checkpoints)
        for problem in damaged:
            warnings.warn(f"a newer checkpoint is damaged and not used: {problem}", stacklevel=2)
        return newest.path / WEIGHTS
    if not path.exists():
        raise UserError(
            f"train.start_from: {path} does not exist; give a run, for a published model one that loopkit import "
            "created: --set train.start_from=runs/NAME"
        )
    if (path / "config.json").is_file():
        raise UserError(
            f"train.start_from: {path} is a published model, not a run; convert it first: loopkit import {path}"
        )
    raise UserError(f"train.start_from: {path} is neither a run nor a checkpoint: it has no {WEIGHTS}")


def load_first_weights(model: LoopedModel, path: Path) -> None:
    """Load the weights of ``train.start_from`` into a model.

    Raises:
        UserError: If there are no weights, or they do not fit.
    """
    load_weights(model, find_weights(path))
