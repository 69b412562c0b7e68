"""Evaluation during training: the same one that ``loopkit eval`` runs, written to the run folder."""

from __future__ import annotations

from dataclasses import replace

from loopkit.data import Prepared
from loopkit.evaluation import completions_of, results_of, write_result
from loopkit.evaluation.result import ModelSource
from loopkit.evaluation.settings import EvaluationSettings, generates
from loopkit.evaluation.shards import ALONE, EvaluationShard, can_be_shared
from loopkit.evaluation.trained_run import trained_depths
from loopkit.recipe import Recipe
from loopkit.recipe.format import EvaluateConfig
from loopkit.runs.folder import RunFolder
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.engine import Engine


class EvaluationHook:
    """Evaluate the model in training and write ``eval/step-….json``.

    Args:
        recipe: The resolved recipe; its ``evaluate`` section says what is measured, and whether texts are left out.
        folder: The run.
        prepared: Tokenizer and encoded splits.
        engine: The model.
        process: Which rank this is. The ranks share the batches where every probe allows it; else the first one
            evaluates and the others wait.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        prepared: Prepared,
        engine: Engine,
        process: Process,
    ) -> None:
        self.recipe, self.folder, self.prepared = recipe, folder, prepared
        self.engine, self.process = engine, process
        self.settings = in_training(recipe)
        self.trained = trained_depths(recipe, depth_free=engine.module.model.depth_free)

    def __call__(self, step: int) -> None:
        """Evaluate after so many optimizer steps; nothing happens where the recipe asks for nothing."""
        if not asks(self.recipe):
            return
        shared = self.process.world > 1 and can_be_shared(self.settings)
        # under ZeRO-3 a forward pass is work for all ranks, shared or not
        in_step = self.engine.stage == 3
        try:
            if shared:
                self._evaluate(step, EvaluationShard(self.process.rank, self.process.world, in_step))
            elif self.process.first or in_step:
                self._evaluate(step, ALONE)
        finally:
            self.process.barrier()

    def done(self, step: int) -> bool:
        """Whether the result of that step is there."""
        if not asks(self.recipe):
            return True
        # the folder of the first rank counts: elsewhere it may not be seen yet, and all ranks must do the same
        return self.process.any(self.process.first and bool(results_of(self.folder, step)))

    def _evaluate(self, step: int, shard: EvaluationShard) -> None:
        from loopkit.evaluation import evaluate

        # the ranks of ZeRO-3 must do the same work, which a file that one of them writes would change
        keeps = self.process.first and self.engine.stage != 3
        result = evaluate(
            self.engine.module.model,
            self.prepared,
            replace(EvaluationSettings.from_recipe(self.recipe), config=self.settings),
            trained=self.trained,
            completions=completions_of(self.folder, step) if keeps else None,
            origin=ModelSource(
                run=self.folder.name,
                recipe=self.recipe.name,
                recipe_hash=self.recipe.hash,
                checkpoint=self.folder.checkpoint(step).name,
                step=step,
            ),
            shard=shard,
        )
        if self.process.first:
            write_result(result, self.folder)


def asks(recipe: Recipe) -> bool:
    """Whether a recipe wants anything measured while it trains."""
    settings = in_training(recipe)
    return bool(settings.tasks or settings.probes)


def in_training(recipe: Recipe) -> EvaluateConfig:
    """What is measured while a recipe trains: without the texts that it leaves to ``loopkit eval``."""
    settings = recipe.evaluate
    if settings.generation == "always":
        return settings
    return replace(settings, tasks={name: spec for name, spec in settings.tasks.items() if not generates(spec)})
