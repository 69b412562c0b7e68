"""What training needs, made from a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loopkit.components.schedule import Schedule
from loopkit.cost.available_memory import budget
from loopkit.cost.ceiling import Ceiling, recipe_ceiling
from loopkit.cost.flops import StepFlops
from loopkit.cost.memory import estimate
from loopkit.data import Prepared, Sampler, Steps
from loopkit.data.batch_sizes import BatchSizes, largest_micro
from loopkit.data.run_length import num_steps
from loopkit.errors import UserError
from loopkit.model import LoopedModel, build_model, count_parameters
from loopkit.model.parameter_groups import freeze, parameter_groups
from loopkit.objective import build_objective
from loopkit.recipe import Recipe
from loopkit.runs.checkpoint import Checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.training.checkpointing.checkpoint import TrainState, load_parameters
from loopkit.training.checkpointing.start_from import load_first_weights
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.deepspeed_config import deepspeed_config
from loopkit.training.step.engine import Engine
from loopkit.training.step.loop_sampling import LoopSampler
from loopkit.training.step.module import TrainingModule
from loopkit.training.trainer import StepPlan


@dataclass(frozen=True)
class ResumePoint:
    """Where a resumed run begins.

    Args:
        checkpoint: The checkpoint, which has been found whole.
        place: What it says of the run.
    """

    checkpoint: Checkpoint
    place: TrainState


class Setup:
    """What training needs, made from the recipe in the order in which mistakes are cheapest.

    Args:
        recipe: The resolved recipe.
        folder: Where the run goes.
        process: Which rank this is.
        prepared: Tokenizer and encoded splits.
        start: Where a resumed run begins; None for a fresh one.

    Raises:
        ValueError: If data, sizes, weights or patterns do not fit the recipe.
    """

    def __init__(
        self, recipe: Recipe, folder: RunFolder, process: Process, prepared: Prepared, start: ResumePoint | None
    ) -> None:
        self.recipe, self.folder, self.process, self.prepared, self.start = recipe, folder, process, prepared, start
        train, data = recipe.train, recipe.data
        self.schedule: Schedule = train.schedule.build()
        self.examples = prepared.splits["train"].examples(data.length, data.stride)
        self.num_steps = num_steps(train, len(self.examples), data.length)
        if start is not None and start.place.step > self.num_steps:
            done = f"the run has already done {start.place.step} steps, not {self.num_steps}"
            raise UserError(f"{done}; raise train.steps")
        self.model = self._model()
        self.objective = build_objective(recipe.objective)
        if start is not None:
            load_parameters(start.checkpoint, self.model, self.objective)
        elif train.start_from is not None:
            load_first_weights(self.model, train.start_from)
        freeze(self.model, train.trainable)
        self.sizes = BatchSizes.of(train.batch, self._micro(), process.world)
        self.config = deepspeed_config(self.sizes, train.clip, train.deepspeed)

    @property
    def place(self) -> TrainState:
        """Where the run begins."""
        if self.start is None:
            return TrainState(step=0, sequences=0, tokens=0, micro=self.sizes.micro)
        return replace(self.start.place, micro=self.sizes.micro)

    def _model(self) -> LoopedModel:
        fresh = self.start is None and self.recipe.train.start_from is None
        return build_model(
            self.recipe.model,
            vocabulary=self.prepared.tokenizer.size,
            max_length=self.recipe.data.length,
            max_loops=self.schedule.bounds[1],
            mean_loops=self.schedule.mean,
            seed=self.recipe.seed if fresh else None,
        )

    def _micro(self) -> int:
        train = self.recipe.train
        if train.micro_batch != "auto":
            return train.micro_batch
        if self.start is not None and train.batch % (self.start.place.micro * self.process.world) == 0:
            return self.start.place.micro
        asked = (self.model, self.objective.supervision, self.recipe, self.schedule)
        memory = estimate(*asked, self.process.world, self.process.device.type)
        room = budget(self.process.device)
        return largest_micro(train.batch, self.process.world, lambda micro: memory.total(micro) <= room)

    def engine(self, verbose: bool) -> Engine:
        """Model and objective on their device, with their optimizer, inside of DeepSpeed."""
        train = self.recipe.train
        module = TrainingModule(self.model, self.objective, seed=self.recipe.seed, precision=train.precision)
        module.to(self.process.device).train()
        self.model.checkpointing = train.checkpointing
        if train.compile:
            self.model.compile_blocks()
        optimizer = train.optimizer.build().build(parameter_groups(module))
        return Engine(module, optimizer, self.config, self.process, verbose=verbose)

    def ceiling(self) -> Ceiling:
        """The most that the device can do, in the arithmetic of the recipe."""
        return recipe_ceiling(self.process.device, self.recipe.train.precision)

    def course(self) -> StepPlan:
        """What the optimizer steps are made of."""
        recipe, sizes = self.recipe, self.sizes
        train, most = recipe.train, self.schedule.bounds[1]
        sampler = Sampler(len(self.examples), recipe.seed)
        steps = Steps(self.examples, sampler, sizes, self.process.rank)
        drawer = LoopSampler(
            self.schedule,
            seed=recipe.seed,
            per=train.loops_per,
            backprop=train.backprop,
            num_steps=self.num_steps,
        )
        return StepPlan(self.num_steps, sizes, steps, drawer, train.lr.build(), self._flops(most))

    def _flops(self, most: int) -> StepFlops | None:
        if self.model.stops:  # how many loops are run is known when they have been run
            return None
        try:
            return StepFlops(self.model, self.objective.supervision, length=self.recipe.data.length, most=most)
        except (RuntimeError, NotImplementedError):  # a model that shapes alone cannot run is trained without MFU
            return None

    def describe(self) -> Iterator[str]:
        """What is about to happen, in a few lines."""
        for name, split in self.prepared.splits.items():
            report = split.report
            lost = f"{report.unknown_rate:.2%} of tokens unknown, {report.lost_rate:.2%} of characters lost"
            yield f"{name}: {report.tokens:,} tokens, {lost}"
        sizes, model = self.sizes, count_parameters(self.model)
        yield f"model: {model.unique:,} parameters, {model.looped:,} of them in the loop"
        shared = f"{sizes.micro} at a time" + (f" on each of {sizes.world} ranks" if sizes.world > 1 else "")
        left = self.num_steps - self.place.step
        yield f"training: {left} steps of {sizes.batch} sequences, {shared}, on {self.process.device}"
