"""Evaluation during training: the same one that ``loopkit eval`` runs, written to the run folder."""

from __future__ import annotations

from pathlib import Path

from loopkit.components.schedule import Schedule
from loopkit.data import Prepared
from loopkit.evaluation import Trained
from loopkit.evaluation.result import Origin
from loopkit.recipe import Recipe
from loopkit.runs.atomic import write_json
from loopkit.runs.folder import RunFolder
from loopkit.training.engine import Engine
from loopkit.training.process import Process
from loopkit.training.state import whole_parameters


class Measurement:
    """Evaluate the model in training and write ``eval/step-….json``.

    Args:
        recipe: The resolved recipe; its ``evaluate`` section says what is measured.
        folder: The run.
        prepared: Tokenizer and encoded splits.
        engine: The model.
        schedule: Which depths are trained.
        process: Which rank this is; the first one evaluates, the others wait.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        prepared: Prepared,
        engine: Engine,
        schedule: Schedule,
        process: Process,
    ) -> None:
        self.recipe, self.folder, self.prepared = recipe, folder, prepared
        self.engine, self.process = engine, process
        self.trained = Trained(*schedule.bounds, schedule.mean)

    def __call__(self, step: int) -> None:
        """Evaluate after so many optimizer steps; nothing happens where the recipe asks for nothing."""
        if not asks(self.recipe):
            return
        with whole_parameters(self.engine):
            try:
                if self.process.first:
                    self._evaluate(step)
            finally:
                self.process.barrier()

    def done(self, step: int) -> bool:
        """Whether the result of that step is there."""
        return not asks(self.recipe) or self._path(step).is_file()

    def _evaluate(self, step: int) -> None:
        from loopkit.evaluation import evaluate

        result = evaluate(
            self.engine.module.model,
            self.prepared,
            self.recipe.evaluate,
            length=self.recipe.data.length,
            device=self.process.device,
            dtype=self.recipe.train.precision,
            trained=self.trained,
            origin=Origin(
                run=self.folder.name,
                recipe=self.recipe.name,
                recipe_hash=self.recipe.hash,
                checkpoint=self.folder.checkpoint(step).name,
                step=step,
            ),
        )
        write_json(self._path(step), result.to_json())

    def _path(self, step: int) -> Path:
        return self.folder.evaluations / f"{self.folder.checkpoint(step).name}.json"


def asks(recipe: Recipe) -> bool:
    """Whether a recipe wants anything measured."""
    return bool(recipe.evaluate.tasks or recipe.evaluate.probes)
