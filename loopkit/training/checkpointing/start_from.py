"""What a run takes over from another one (``train.start_from``): weights, vocabulary, optimizer state."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.tokenizer import Tokenizer, load_tokenizer
from loopkit.errors import UserError
from loopkit.model import LoopedModel, load_weights
from loopkit.recipe import Recipe
from loopkit.recipe.difference import differences
from loopkit.recipe.format import TrainConfig
from loopkit.registry import Spec
from loopkit.runs.checkpoint import OPTIMIZER, TOKENIZER, WEIGHTS, Checkpoint, Weights, newest_checkpoint, step_of
from loopkit.runs.folder import RunFolder
from loopkit.runs.manifest import MANIFEST
from loopkit.training.checkpointing.checkpoint import load_optimizer, read_state
from loopkit.training.step.engine import Engine


@dataclass(frozen=True)
class StartPoint:
    """The weights that a run starts from.

    Args:
        file: The weights file.
        weights: Which weights of the checkpoint it contains.
        checkpoint: The complete checkpoint that contains it; None for a file outside a checkpoint.
    """

    file: Path
    weights: Weights = "trained"
    checkpoint: Checkpoint | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what the record of the run states about its start."""
        facts: dict[str, Any] = {"file": str(self.file), "weights": self.weights}
        return facts if self.checkpoint is None else facts | {"step": self.checkpoint.step}


def find_start(train: TrainConfig) -> StartPoint | None:
    """Find the weights that ``train.start_from`` names: a weights file, a checkpoint, or the newest one of a run.

    Returns:
        The start; None if the run starts with initial weights.

    Raises:
        UserError: If there are no such weights, or no optimizer state although the recipe asks for it.
        CheckpointProblem: If a checkpoint is not complete, or has no average although the recipe asks for it.
    """
    if train.start_from is None:
        return None
    checkpoint = _find_checkpoint(train.start_from)
    if isinstance(checkpoint, Checkpoint):
        if train.start_optimizer and not checkpoint.holds(OPTIMIZER):
            raise UserError(
                f"train.start_optimizer: {checkpoint.path} contains no optimizer state; "
                "set train.start_optimizer to false"
            )
        return StartPoint(checkpoint.weights_file(train.start_weights), train.start_weights, checkpoint)
    for key, is_default in (
        ("start_weights", train.start_weights == "trained"),
        ("start_optimizer", not train.start_optimizer),
    ):
        if not is_default:
            raise UserError(f"train.{key}: {checkpoint} is not part of a checkpoint; set train.start_from to a run")
    return StartPoint(checkpoint)


def _find_checkpoint(path: Path) -> Checkpoint | Path:
    """Return the checkpoint that a path names, or a weights file outside one."""
    if path.is_file():
        return path
    if (path / MANIFEST).is_file() and (step := step_of(path)) is not None:
        return Checkpoint(path, step).check()
    if (path / WEIGHTS).is_file():
        return path / WEIGHTS
    run = RunFolder(path)
    if run.checkpoints.is_dir():
        newest, damaged = newest_checkpoint(run.checkpoints)
        for problem in damaged:
            warnings.warn(f"a newer checkpoint is damaged and not used: {problem}", stacklevel=2)
        return newest
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


def start_tokenizer(start: StartPoint, spec: Spec, say: Callable[[str], None]) -> Tokenizer | None:
    """Return the tokenizer that a run takes over: the vocabulary of the rows of the embedding, if it is fitted.

    Args:
        start: The start of the run.
        spec: The recipe's tokenizer.
        say: Receives a warning if a tokenizer that is not fitted gives other tokens to the rows.

    Returns:
        The tokenizer of the earlier run; None if the recipe's is to be used.
    """
    if start.checkpoint is None or not (folder := start.checkpoint.path / TOKENIZER).is_dir():
        return None
    saved, current = load_tokenizer(folder, spec), spec.build()
    if current.fit_on and type(saved) is type(current):
        return saved
    if current.fit_on:
        say(f"warning: data.tokenizer: {spec.name} is fitted anew, because {folder} is of another type")
    elif saved.fingerprint() != current.fingerprint():
        other = [
            number for number in range(min(saved.size, current.size)) if _text(saved, number) != _text(current, number)
        ]
        if other:
            example = f"token {other[0]} is {_text(saved, other[0])!r} there and {_text(current, other[0])!r} here"
            say(f"warning: data.tokenizer: {len(other):,} tokens differ from those of {folder}; {example}")
    return None


def _text(tokenizer: Tokenizer, number: int) -> str:
    return tokenizer.decode([number], special=True)


def load_first_weights(model: LoopedModel, start: StartPoint) -> None:
    """Load the weights and buffers that a run starts from into its model.

    Raises:
        WeightsError: If they do not fit.
    """
    load_weights(model, start.file)


def load_first_optimizer(start: StartPoint, engine: Engine, recipe: Recipe) -> None:
    """Load the optimizer state that a run starts from.

    Args:
        start: The start of the run, with a checkpoint.
        engine: The engine of the new run.
        recipe: The recipe of the new run.

    Raises:
        UserError: If the optimizer or the trained parameters are not those of the checkpoint.
        CheckpointProblem: If the checkpoint has no readable state.
    """
    assert start.checkpoint is not None, "find_start refuses a file"
    saved = recipe.identity.completed(read_state(start.checkpoint)["recipe"])["train"]["optimizer"]
    changes = list(differences({"optimizer": saved}, {"optimizer": recipe.values["train"]["optimizer"]}))
    if changes:
        lines = "\n".join(
            "  train.{}: {} there, {} here".format(change.key, *change.format_values()) for change in changes
        )
        raise UserError(
            f"train.start_optimizer: the optimizer of {start.checkpoint.path} differs:\n{lines}\n"
            "set the same optimizer, or train.start_optimizer to false"
        )
    load_optimizer(start.checkpoint, engine)
