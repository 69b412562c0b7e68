"""Evaluation during training: the evaluation of ``loopkit eval``, written to the run folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from loopkit.data import Prepared
from loopkit.evaluation import completions_of, evaluate, results_of, write_result
from loopkit.evaluation.context import get_split
from loopkit.evaluation.result import ModelSource, Result
from loopkit.evaluation.settings import EvaluationSettings, generates, reads_split
from loopkit.evaluation.shards import ALONE, EvaluationShard, can_be_shared
from loopkit.evaluation.trained_run import trained_depths
from loopkit.recipe import Recipe
from loopkit.recipe.format import EvaluateConfig
from loopkit.runs.checkpoint import Weights
from loopkit.runs.folder import RunFolder
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.engine import Engine
from loopkit.training.step.weight_average import WeightAverage


class EvaluationHook:
    """Evaluate the model during training and write ``eval/step-….json``.

    Args:
        recipe: The resolved recipe; its ``evaluate`` section selects tasks and probes.
        folder: The run.
        prepared: Tokenizer and encoded splits.
        engine: The model.
        process: This rank. The ranks share the batches if every probe allows it; otherwise the first rank evaluates
            and the others wait.
        average: The average of the weights; the last step evaluates it too. None if the recipe has none.
        num_steps: Optimizer steps of the run.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        prepared: Prepared,
        engine: Engine,
        process: Process,
        average: WeightAverage | None,
        num_steps: int,
    ) -> None:
        self.recipe, self.folder, self.prepared = recipe, folder, prepared
        self.engine, self.process = engine, process
        self.average, self.num_steps = average, num_steps
        self.settings = settings_in_training(recipe)
        self.trained = trained_depths(recipe, engine.module.model)

    def __call__(self, step: int) -> None:
        """Evaluate after an optimizer step, if the recipe has tasks or probes."""
        if has_evaluation(self.recipe):
            for weights in self._weights_at(step):
                self._on_every_rank(partial(self._evaluate, step, weights))

    def _weights_at(self, step: int) -> tuple[Weights, ...]:
        """Return the weights that the evaluation of a step measures."""
        return ("trained", "ema") if self.average is not None and step == self.num_steps else ("trained",)

    def rehearse(self) -> None:
        """Evaluate the first piece of text after one loop, and store nothing.

        Two tasks or probes that use one name for different figures are thus reported before the first step, even if
        their registrations do not list their figures and ``validate`` therefore cannot compare them.

        Raises:
            UserError: If two tasks or probes use one name.
        """
        components = [*self.settings.tasks.values(), *self.settings.probes.values()]
        if len(components) > 1 and any("figures" not in spec.traits and reads_split(spec) for spec in components):
            self._on_every_rank(self._evaluate_first_piece)

    def _on_every_rank(self, evaluate_shard: Callable[[EvaluationShard], None]) -> None:
        shared = self.process.world > 1 and can_be_shared(self.settings)
        # under ZeRO-3 all ranks take part in every forward pass
        in_step = self.engine.stage == 3
        try:
            if shared:
                evaluate_shard(EvaluationShard(self.process.rank, self.process.world, in_step))
            elif self.process.first or in_step:
                evaluate_shard(ALONE)
        finally:
            self.process.barrier()

    def is_done(self, step: int) -> bool:
        """Whether the evaluation of a step is written, or the recipe has none."""
        if not has_evaluation(self.recipe):
            return True
        # the first rank decides: other machines may not see the file yet, and all ranks must agree
        return self.process.any(self.process.first and self._is_written(step))

    def _is_written(self, step: int) -> bool:
        return all(results_of(self.folder, step, weights) for weights in self._weights_at(step))

    def _evaluate_first_piece(self, shard: EvaluationShard) -> None:
        store = get_split(self.prepared, self.settings.split).store
        scored = {name: spec for name, spec in self.settings.tasks.items() if reads_split(spec)}
        config = replace(self.settings, tasks=scored, max_tokens=store.shortest_prefix, batch=1)
        settings = replace(EvaluationSettings.from_recipe(self.recipe, depths=[1]), config=config)
        evaluate(self.engine.module.model, self.prepared, settings, trained=self.trained, shard=shard)

    def _evaluate(self, step: int, weights: Weights, shard: EvaluationShard) -> None:
        with nullcontext() if weights == "trained" or self.average is None else self.average.applied():
            result = self._measure(step, weights, shard)
        if self.process.first:
            write_result(result, self.folder)

    def _measure(self, step: int, weights: Weights, shard: EvaluationShard) -> Result:
        # under ZeRO-3 the ranks must do the same work, which saved completions of one rank would prevent
        saves_completions = self.process.first and self.engine.stage != 3
        return evaluate(
            self.engine.module.model,
            self.prepared,
            replace(EvaluationSettings.from_recipe(self.recipe), config=self.settings),
            trained=self.trained,
            completions=completions_of(self.folder, step, weights) if saves_completions else None,
            origin=ModelSource(
                run=self.folder.name,
                recipe=self.recipe.name,
                recipe_hash=self.recipe.hash,
                checkpoint=self.folder.checkpoint(step).name,
                step=step,
                weights=None if weights == "trained" else weights,
            ),
            shard=shard,
        )


def has_evaluation(recipe: Recipe) -> bool:
    """Whether a recipe evaluates anything during training."""
    settings = settings_in_training(recipe)
    return bool(settings.tasks or settings.probes)


def settings_in_training(recipe: Recipe) -> EvaluateConfig:
    """Return the evaluation settings for training, without generation tasks that are left to ``loopkit eval``."""
    settings = recipe.evaluate
    if settings.generation == "always":
        return settings
    return replace(settings, tasks={name: spec for name, spec in settings.tasks.items() if not generates(spec)})
