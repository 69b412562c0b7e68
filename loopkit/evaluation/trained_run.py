"""A finished or interrupted run, opened for evaluation: its recipe, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from loopkit.components.schedule import Schedule
from loopkit.components.supervision import Supervision
from loopkit.components.tokenizer import Tokenizer, load_tokenizer
from loopkit.evaluation.depth_sweep import ReadAs
from loopkit.evaluation.result import ModelSource, TrainedDepths
from loopkit.model import LoopedModel, build_model, load_weights
from loopkit.recipe import Recipe
from loopkit.recipe.depths import default_depths
from loopkit.runs import Checkpoint, RunFolder, checkpoints, newest_checkpoint
from loopkit.runs.checkpoint import TOKENIZER, CheckpointProblem, Weights
from loopkit.runs.resolved import load_resolved


@dataclass(frozen=True)
class TrainedRun:
    """A run with the model of one of its checkpoints.

    Args:
        folder: The run.
        checkpoint: Source of the weights.
        recipe: The resolved recipe, with the overrides passed to ``open_run``.
        recipe_hash: Hash of the recipe without these overrides.
        model: In evaluation mode.
        tokenizer: The tokenizer of training.
        warnings: Problems of newer checkpoints, if any.
        weights: Which weights of the checkpoint the model has.
    """

    folder: RunFolder
    checkpoint: Checkpoint
    recipe: Recipe
    recipe_hash: str
    model: LoopedModel
    tokenizer: Tokenizer
    warnings: tuple[str, ...] = ()
    weights: Weights = "trained"

    @property
    def trained(self) -> TrainedDepths:
        """The supervised depths of training, for an evaluation that reads each depth as the last loop."""
        return self.trained_as("depth")

    def trained_as(self, read_as: ReadAs) -> TrainedDepths:
        """Return the supervised depths of training, for a given way of reading loops."""
        return trained_depths(self.recipe, self.model, read_as)

    @property
    def depths(self) -> list[int]:
        """The default depths: the recipe's, or from 1 to the deepest trained one, and twice that if possible."""
        deepest, limit = self.trained.max, self.model.max_depth
        extrapolation = 2 * deepest if limit is None or 2 * deepest <= limit else None
        return default_depths(self.recipe.evaluate.depths, deepest, extrapolation=extrapolation)

    @property
    def origin(self) -> ModelSource:
        """The origin that results of this model record."""
        return ModelSource(
            run=self.folder.name,
            recipe=self.recipe.name,
            recipe_hash=self.recipe_hash,
            checkpoint=self.checkpoint.path.name,
            step=self.checkpoint.step,
            weights=None if self.weights == "trained" else self.weights,
        )

    @property
    def names(self) -> dict[str, Any]:
        """Run, checkpoint, and weights unless they are the trained ones, as records of generated text name them."""
        names = {"run": self.folder.name, "checkpoint": self.checkpoint.path.name}
        return names if self.weights == "trained" else names | {"weights": self.weights}

    @property
    def label(self) -> str:
        """Name of the checkpoint, and of its weights unless they are the trained ones."""
        return self.checkpoint.path.name + ("" if self.weights == "trained" else f", {self.weights} weights")


def open_run(
    run: str | Path | None = None,
    *,
    step: int | None = None,
    weights: Weights = "trained",
    overrides: tuple[str, ...] = (),
    tasks: Sequence[str] = (),
    plugins: Sequence[Path] = (),
    device: torch.device | str | None = None,
    root: Path = Path("runs"),
) -> TrainedRun:
    """Open a run.

    Args:
        run: Its folder or its name; None is the newest.
        step: Optimizer step of the checkpoint; None is the newest complete one.
        weights: ``trained``, or ``ema`` for their exponential moving average.
        overrides: Changes to its recipe that do not affect the model, such as ``evaluate.batch=4``.
        tasks: Only these tasks, as name or name=type, and no probes; empty: the tasks and probes of the recipe.
            Overrides are applied afterwards, and may set their options.
        plugins: Files with components, in addition to those of the run.
        device: Device of the model; None is the CPU.
        root: Folder of the runs.

    Raises:
        NoRun: If the run does not exist.
        CheckpointProblem: If the checkpoint is missing or damaged, or has no average; the message contains the file.
        RecipeError: If a component is not installed; the message contains the package that provided it.
    """
    folder = RunFolder.open(run, root)
    checkpoint, warnings = choose_checkpoint(folder, step)
    weights_file = checkpoint.weights_file(weights)
    trained = load_resolved(folder.resolved, checkpoint, plugins=plugins)
    recipe = load_resolved(folder.resolved, checkpoint, (*_task_overrides(tasks, trained), *overrides), plugins)
    trained = _without_plugins(trained, plugins)
    tokenizer = load_tokenizer(checkpoint.path / TOKENIZER, recipe.data.tokenizer)
    schedule: Schedule = recipe.train.schedule.build()
    model = build_model(
        recipe.model,
        vocabulary=tokenizer.size,
        max_length=recipe.data.length,
        max_loops=schedule.bounds[1],
        device=device,
    )
    load_weights(model, weights_file)
    return TrainedRun(folder, checkpoint, recipe, trained.hash, model.eval(), tokenizer, tuple(warnings), weights)


def _without_plugins(recipe: Recipe, plugins: Sequence[Path]) -> Recipe:
    """Return the recipe without plugin files of the command line, which are not part of its identity."""
    own = [file for file in recipe.values["plugins"] if Path(file).resolve() not in {f.resolve() for f in plugins}]
    return replace(recipe, values={**recipe.values, "plugins": own}) if plugins else recipe


def _task_overrides(tasks: Sequence[str], recipe: Recipe) -> list[str]:
    """Return overrides that keep only these tasks; a task of the recipe keeps its options unless it changes type."""
    if not tasks:
        return []
    types = {name: kind for name, _, kind in (task.partition("=") for task in tasks)}
    evaluate = recipe.evaluate
    removals = [f"evaluate.tasks.{name}=false" for name in evaluate.tasks if name not in types]
    removals += [f"evaluate.probes.{name}=false" for name in evaluate.probes]
    additions = [
        f"evaluate.tasks.{name}.type={kind or name}"
        for name, kind in types.items()
        if kind or name not in evaluate.tasks
    ]
    return removals + additions


def trained_depths(recipe: Recipe, model: LoopedModel, read_as: ReadAs = "depth") -> TrainedDepths:
    """Return the depths that a recipe trains, for a given way of reading loops.

    A depth is trained if training supervised the loop that the evaluation reads: after a pass of as many loops, if the
    loop depends on the length of its pass (``uses_total``); as the last loop or not, if the readout reads the last
    loop differently (``uses_at``); and in any pass otherwise.

    Args:
        recipe: The resolved recipe.
        model: States which of these it depends on.
        read_as: How the evaluation reads loops.
    """
    schedule: Schedule = recipe.train.schedule.build()
    supervision: Supervision = recipe.objective.supervision.build()
    min_loops, max_loops = schedule.bounds
    first = min(supervision.loops(min_loops))
    supervised = [
        (loop, total) for total in range(min_loops, max_loops + 1) for loop in supervision.loops(total)
    ]  # each loop with the number of loops of its pass
    as_last = {loop for loop, total in supervised if loop == total}
    if model.depth_free and not model.reads_last_differently:
        depths = {loop for loop, _ in supervised}
    elif read_as == "depth":
        depths = as_last
    elif model.depth_free:
        depths = {loop for loop, total in supervised if loop < total} | (as_last & {max_loops})
    else:
        depths = {loop for loop, total in supervised if total == max_loops}
    is_range = depths == set(range(first, max_loops + 1))
    return TrainedDepths(first, max_loops, schedule.mean, None if is_range else tuple(sorted(depths)))


def choose_checkpoint(folder: RunFolder, step: int | None = None) -> tuple[Checkpoint, list[str]]:
    """Return a complete checkpoint of a run, and the problems of newer ones.

    Args:
        folder: The run.
        step: Optimizer step of the checkpoint; None is the newest complete one.

    Raises:
        CheckpointProblem: If the checkpoint is missing or damaged; the message contains the file.
    """
    if step is None:
        return newest_checkpoint(folder.checkpoints)
    available = checkpoints(folder.checkpoints)
    for checkpoint in available:
        if checkpoint.step == step:
            return checkpoint.check(), []
    steps = ", ".join(str(checkpoint.step) for checkpoint in available) or "none"
    raise CheckpointProblem(f"{folder.path} has no checkpoint of step {step}; steps: {steps}")
