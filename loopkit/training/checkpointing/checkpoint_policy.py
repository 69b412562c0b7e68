"""The rule by which checkpoints are written and removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from loopkit.components.tokenizer import Tokenizer
from loopkit.evaluation import results_of
from loopkit.recipe import Recipe
from loopkit.runs.best import BestFigure, better, figure_of, read_best, write_best
from loopkit.runs.checkpoint import Checkpoint, prune_checkpoints
from loopkit.runs.folder import RunFolder
from loopkit.training.checkpointing import checkpoint, rng
from loopkit.training.checkpointing.checkpoint import TrainState
from loopkit.training.distributed.process_group import Process
from loopkit.training.errors import NotFinite
from loopkit.training.step.engine import Engine
from loopkit.training.step.weight_average import WeightAverage


@dataclass
class CheckpointPolicy:
    """Write checkpoints; keep the newest few and the best.

    Args:
        recipe: The resolved recipe.
        folder: The run.
        process: This rank; the first rank removes checkpoints.
        tokenizer: Saved with each checkpoint.
        engine: Model and optimizer to save.
        average: The average of the weights, if the recipe has one.
        say: Prints a message.
        newest: The newest checkpoint of the run, if there is one.
    """

    recipe: Recipe
    folder: RunFolder
    process: Process
    tokenizer: Tokenizer
    engine: Engine
    average: WeightAverage | None
    say: Callable[[str], None]
    newest: Checkpoint | None = None

    def is_due(self, step: int, num_steps: int) -> bool:
        """Whether a checkpoint is due after ``step``; if the best one is kept, also before every evaluation."""
        settings = self.recipe.train.checkpoint
        intervals = [settings.every]
        if settings.best.figure is not None:
            intervals.append(self.recipe.evaluate.every)
        return step == num_steps or any(every is not None and step % every == 0 for every in intervals)

    def save(self, state: TrainState) -> None:
        """Write a checkpoint, unless this step has one; then remove old ones.

        Raises:
            NotFinite: If a weight is not finite on any rank.
            WriteFailed: If it could not be written; older ones stay.
        """
        if self.newest is not None and self.newest.step == state.step:
            return
        previous = self.newest.path if self.newest else None
        finite = [parameter.detach().isfinite().all() for parameter in self.engine.module.parameters()]
        if self.process.any(not torch.stack(finite).all()):
            raise NotFinite(state.step, "a weight is not finite", previous)
        self.newest = checkpoint.save(
            self.folder,
            state,
            recipe=self.recipe,
            engine=self.engine,
            tokenizer=self.tokenizer,
            process=self.process,
            generators=rng.capture(self.process.device),
            average=self.average,
            previous=previous,
        )
        self.prune(state.step)

    def prune(self, step: int) -> None:
        """Remove old checkpoints; a failure to remove one is a warning."""
        if not self.process.first:
            return
        settings = self.recipe.train.checkpoint
        best = read_best(self.folder.checkpoints, settings.best.figure, step) if settings.best.figure else None
        try:
            prune_checkpoints(self.folder.checkpoints, step, settings.keep, [best.step] if best else [])
        except OSError as error:
            self.say(f"warning: an old checkpoint could not be removed: {error}")

    def update_best(self, step: int) -> Mapping[str, Any] | None:
        """Compare the evaluation of a step with the best so far, and mark its checkpoint if it is better.

        Returns:
            The metrics at each depth, on the first rank; None if there is no evaluation of this step.
        """
        results = results_of(self.folder, step) if self.process.first else []
        if not results:
            return None
        path = max(results, key=lambda path: path.stat().st_mtime_ns)
        rows = json.loads(path.read_text(encoding="utf-8"))["depths"]
        self._update_best(step, rows)
        return {
            str(row["depth"]): {name: row[name] for name in row if name not in ("depth", "trained")} for row in rows
        }

    def _update_best(self, step: int, rows: list[dict[str, Any]]) -> None:
        settings = self.recipe.train.checkpoint.best
        if settings.figure is None or self.newest is None or self.newest.step != step:
            return
        try:
            depth, value = figure_of(rows, settings.figure, settings.depth)
        except ValueError as problem:  # a figure is absent if it was not finite
            self.say(f"warning: the checkpoint of step {step} is not compared: {problem}")
            return
        candidate = BestFigure(step, settings.figure, depth, value)
        if better(candidate, read_best(self.folder.checkpoints, settings.figure, step), settings.goal):
            write_best(self.folder.checkpoints, candidate)
            self.prune(step)
