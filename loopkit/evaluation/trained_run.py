"""A finished or interrupted run, opened again: its recipe, its weights, its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from loopkit.components.schedule import Schedule
from loopkit.components.supervision import Supervision
from loopkit.components.tokenizer import Tokenizer, load_tokenizer
from loopkit.evaluation.depth_sweep import ReadAs
from loopkit.evaluation.result import ModelSource, TrainedDepths
from loopkit.model import LoopedModel, build_model, load_weights
from loopkit.recipe import Recipe
from loopkit.recipe.depths import parse_depths
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
    def trained(self) -> TrainedDepths:
        """The depths that training supervised, for an evaluation that reads each as the last loop."""
        return self.trained_as("depth")

    def trained_as(self, read_as: ReadAs) -> TrainedDepths:
        """The depths that training supervised in the way in which an evaluation reads them."""
        return trained_depths(self.recipe, depth_free=self.model.depth_free, read_as=read_as)

    @property
    def depths(self) -> list[int]:
        """The depths to evaluate unless told otherwise: the recipe's, or 1 to the most trained and twice that.

        The one beyond shows what the model does with loops that it was not trained for.
        """
        if self.recipe.evaluate.depths is not None:
            return parse_depths(str(self.recipe.evaluate.depths))
        most, limit = self.trained.max, self.model.max_depth
        return [*range(1, most + 1), *([2 * most] if limit is None or 2 * most <= limit else [])]

    @property
    def origin(self) -> ModelSource:
        """Where results of this model come from."""
        return ModelSource(
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
    tasks: Sequence[str] = (),
    plugins: Sequence[Path] = (),
    device: torch.device | str | None = None,
    root: Path = Path("runs"),
) -> TrainedRun:
    """Open a run.

    Args:
        run: Its folder or its name; None takes the newest.
        step: The checkpoint after so many optimizer steps; None takes the newest whole one.
        overrides: Changes to its recipe, for what does not touch the model: ``evaluate.batch=4``.
        tasks: Ask these alone, as name or name=type, and no probes; empty asks what the recipe does. Overrides come
            after, and may set their options.
        plugins: Files with further components, beside those that the run was made with.
        device: Where the model goes; None is the CPU.
        root: Where runs lie.

    Raises:
        NoRun: If there is no such run.
        CheckpointProblem: If the checkpoint is missing or damaged, naming the file.
        RecipeError: If a component of it is not there, naming the package that brought it.
    """
    folder = RunFolder.open(run, root)
    checkpoint, warnings = choose_checkpoint(folder, step)
    trained = load_resolved(folder.resolved, checkpoint, plugins=plugins)
    recipe = load_resolved(folder.resolved, checkpoint, (*_only(tasks, trained), *overrides), plugins)
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
    load_weights(model, checkpoint.path / WEIGHTS)
    return TrainedRun(folder, checkpoint, recipe, trained.hash, model.eval(), tokenizer, tuple(warnings))


def _without_plugins(recipe: Recipe, plugins: Sequence[Path]) -> Recipe:
    """The recipe as the run has it: files of the command line are not part of its identity."""
    own = [file for file in recipe.values["plugins"] if Path(file).resolve() not in {f.resolve() for f in plugins}]
    return replace(recipe, values={**recipe.values, "plugins": own}) if plugins else recipe


def _only(tasks: Sequence[str], recipe: Recipe) -> list[str]:
    """Overrides that leave these tasks and no other; one that the recipe has keeps its options, unless given a type."""
    if not tasks:
        return []
    wanted = {name: kind for name, _, kind in (task.partition("=") for task in tasks)}
    evaluate = recipe.evaluate
    gone = [f"evaluate.tasks.{name}=false" for name in evaluate.tasks if name not in wanted]
    gone += [f"evaluate.probes.{name}=false" for name in evaluate.probes]
    asked = [
        f"evaluate.tasks.{name}.type={kind or name}"
        for name, kind in wanted.items()
        if kind or name not in evaluate.tasks
    ]
    return gone + asked


def trained_depths(recipe: Recipe, *, depth_free: bool = True, read_as: ReadAs = "depth") -> TrainedDepths:
    """The depths that a recipe trains, for an evaluation that reads them in a given way.

    Where nothing in the loop depends on its length, a loop that any training step supervised is trained at that depth.
    Elsewhere loop k of a run of k is another thing than loop k of a longer run: read as the last loop, a depth is
    trained if steps of so many loops supervised their last one; read as in training, if steps of the most loops
    supervised that loop.

    Args:
        recipe: The resolved recipe.
        depth_free: Whether nothing in the model's loop depends on the number of loops run.
        read_as: How the evaluation reads loops.
    """
    schedule: Schedule = recipe.train.schedule.build()
    supervision: Supervision = recipe.objective.supervision.build()
    least, most = schedule.bounds
    first = min(supervision.loops(least))
    if depth_free:
        found = {loop for total in range(least, most + 1) for loop in supervision.loops(total)}
    elif read_as == "depth":
        found = {total for total in range(least, most + 1) if total in supervision.loops(total)}
    else:
        found = set(supervision.loops(most))
    whole = found == set(range(first, most + 1))
    return TrainedDepths(first, most, schedule.mean, None if whole else tuple(sorted(found)))


def choose_checkpoint(folder: RunFolder, step: int | None = None) -> tuple[Checkpoint, list[str]]:
    """A whole checkpoint of a run, the newest or that of a step; and what is wrong with each newer one.

    Raises:
        CheckpointProblem: If it is missing or damaged, naming the file.
    """
    if step is None:
        return newest_checkpoint(folder.checkpoints)
    for checkpoint in (known := checkpoints(folder.checkpoints)):
        if checkpoint.step == step:
            return checkpoint.check(), []
    steps = ", ".join(str(checkpoint.step) for checkpoint in known) or "none"
    raise CheckpointProblem(f"{folder.path} has no checkpoint of step {step}; steps: {steps}")
