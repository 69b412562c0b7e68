"""A finished or interrupted run, opened again: its recipe, its weights, its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from loopkit.components.schedule import Schedule
from loopkit.components.supervision import Supervision
from loopkit.components.tokenizer import Tokenizer, load_tokenizer
from loopkit.evaluation.result import Origin, Trained
from loopkit.model import LoopedModel, build_model, load_weights
from loopkit.recipe import Recipe
from loopkit.runs import Checkpoint, RunFolder, checkpoints, newest_checkpoint
from loopkit.runs.checkpoint import TOKENIZER, WEIGHTS, CheckpointProblem
from loopkit.runs.resolved import load_resolved


@dataclass(frozen=True)
class TrainedRun:
    """A run with the model of one of its checkpoints.

    Args:
        folder: The run.
        checkpoint: Where the weights come from.
        recipe: The resolved recipe, with the overrides of this opening.
        recipe_hash: Hash of the recipe as it was trained.
        model: In evaluation mode.
        tokenizer: The one it was trained with.
        warnings: What is wrong with newer checkpoints, if anything.
    """

    folder: RunFolder
    checkpoint: Checkpoint
    recipe: Recipe
    recipe_hash: str
    model: LoopedModel
    tokenizer: Tokenizer
    warnings: tuple[str, ...] = ()

    @property
    def trained(self) -> Trained:
        """The depths that training supervised."""
        return trained_depths(self.recipe)

    @property
    def origin(self) -> Origin:
        """Where results of this model come from."""
        return Origin(
            run=self.folder.name,
            recipe=self.recipe.name,
            recipe_hash=self.recipe_hash,
            checkpoint=self.checkpoint.path.name,
            step=self.checkpoint.step,
        )


def open_run(
    run: str | Path | None = None,
    *,
    step: int | None = None,
    overrides: tuple[str, ...] = (),
    device: torch.device | str | None = None,
    root: Path = Path("runs"),
) -> TrainedRun:
    """Open a run.

    Args:
        run: Its folder or its name; None takes the newest.
        step: The checkpoint after so many optimizer steps; None takes the newest whole one.
        overrides: Changes to its recipe, for what does not touch the model: ``evaluate.batch=4``.
        device: Where the model goes; None is the CPU.
        root: Where runs lie.

    Raises:
        NoRun: If there is no such run.
        CheckpointProblem: If the checkpoint is missing or damaged, naming the file.
        RecipeError: If a component of it is not there, naming the package that brought it.
    """
    folder = RunFolder.open(run, root)
    checkpoint, warnings = _choose(folder, step)
    trained, recipe = (load_resolved(folder.resolved, checkpoint, changes) for changes in ((), overrides))
    tokenizer = load_tokenizer(checkpoint.path / TOKENIZER, recipe.data.tokenizer)
    schedule: Schedule = recipe.train.schedule.build()
    model = build_model(
        recipe.model,
        vocabulary=tokenizer.size,
        max_length=recipe.data.length,
        max_loops=schedule.bounds[1],
        device=device,
    )
    load_weights(model, checkpoint.path / WEIGHTS)
    return TrainedRun(folder, checkpoint, recipe, trained.hash, model.eval(), tokenizer, tuple(warnings))


def trained_depths(recipe: Recipe) -> Trained:
    """The depths that a recipe trains: from the first loop that its supervision reads to the last."""
    schedule: Schedule = recipe.train.schedule.build()
    supervision: Supervision = recipe.objective.supervision.build()
    least, most = schedule.bounds
    return Trained(min(supervision.loops(least)), most, schedule.mean)


def _choose(folder: RunFolder, step: int | None) -> tuple[Checkpoint, list[str]]:
    if step is None:
        return newest_checkpoint(folder.checkpoints)
    for checkpoint in (known := checkpoints(folder.checkpoints)):
        if checkpoint.step == step:
            return checkpoint.check(), []
    steps = ", ".join(str(checkpoint.step) for checkpoint in known) or "none"
    raise CheckpointProblem(f"{folder.path} has no checkpoint of step {step}; steps: {steps}")
