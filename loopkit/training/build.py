"""Build everything that training needs from a recipe: model, engine, step plan, checkpoint policy, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from loopkit.components.schedule import Schedule
from loopkit.cost.available_memory import memory_budget
from loopkit.cost.flops import StepFlops
from loopkit.cost.hardware import Ceiling, recipe_ceiling
from loopkit.cost.memory import estimate
from loopkit.data import Prepared, Sampler, Steps
from loopkit.data.batch_sizes import BatchSizes, largest_micro
from loopkit.errors import UserError
from loopkit.model import LoopedModel, build_model, count_parameters
from loopkit.model.count import Parameters
from loopkit.model.parameter_groups import freeze, parameter_groups
from loopkit.objective import Objective, build_objective
from loopkit.plural import plural
from loopkit.recipe import Recipe
from loopkit.runs.folder import RunFolder
from loopkit.training.checkpointing import rng
from loopkit.training.checkpointing.checkpoint import TrainState, load_parameters, load_rest
from loopkit.training.checkpointing.checkpoint_policy import CheckpointPolicy
from loopkit.training.checkpointing.resume_point import ResumePoint
from loopkit.training.checkpointing.start_from import (
    StartPoint,
    find_start,
    load_first_optimizer,
    load_first_weights,
)
from loopkit.training.distributed.process_group import Process
from loopkit.training.evaluation_hook import EvaluationHook
from loopkit.training.step.deepspeed_config import deepspeed_config
from loopkit.training.step.engine import Engine
from loopkit.training.step.loop_sampling import LoopSampler
from loopkit.training.step.module import TrainingModule
from loopkit.training.step.step_plan import StepPlan
from loopkit.training.step.weight_average import WeightAverage


@dataclass(frozen=True)
class Training:
    """A run that is ready for its first or next optimizer step.

    Args:
        recipe: The resolved recipe.
        folder: The run folder, which may not exist yet.
        process: This rank.
        prepared: Tokenizer and encoded splits.
        resume_point: The start of a resumed run; None for a new run.
        start: The weights that a new run starts from; None for initial weights, and for a resumed run.
        schedule: The distribution of loops.
        num_examples: Training windows in an epoch.
        parameters: Parameter counts of the model.
        deepspeed: The complete DeepSpeed configuration.
        engine: Model, objective and optimizer.
        average: The average of the weights; None if the recipe has none.
        plan: Data, loops, learning rate and FLOPs of every step.
        state: The progress of the run at the start.
        checkpoints: Writes and removes checkpoints.
        evaluation: Evaluates the model during training.
    """

    recipe: Recipe
    folder: RunFolder
    process: Process
    prepared: Prepared
    resume_point: ResumePoint | None
    start: StartPoint | None
    schedule: Schedule
    num_examples: int
    parameters: Parameters
    deepspeed: dict[str, Any]
    engine: Engine
    average: WeightAverage | None
    plan: StepPlan
    state: TrainState
    checkpoints: CheckpointPolicy
    evaluation: EvaluationHook

    @property
    def ceiling(self) -> Ceiling:
        """Peak FLOP/s of the device in the arithmetic of the recipe."""
        return recipe_ceiling(self.process.device, self.recipe.train.precision)

    def describe(self) -> Iterator[str]:
        """Describe data, model and steps, one line each."""
        for name, split in self.prepared.splits.items():
            report = split.report
            lost = f"{report.unknown_rate:.2%} of tokens unknown, {report.lost_rate:.2%} of characters not encoded"
            yield f"{name}: {report.tokens:,} tokens, {lost}"
        yield f"model: {self.parameters.unique:,} parameters, {self.parameters.looped:,} of them in the loop"
        sizes = self.plan.sizes
        per_rank = f"micro-batch {sizes.micro}" + (f" on each of {sizes.world} ranks" if sizes.world > 1 else "")
        remaining = self.plan.num_steps - self.state.step
        steps = f"{plural(remaining, 'step')} of {plural(sizes.batch, 'sequence')}"
        yield f"training: {steps}, {per_rank}, on {self.process.device}"


def build_training(
    recipe: Recipe,
    *,
    folder: RunFolder,
    process: Process,
    prepared: Prepared,
    resume_point: ResumePoint | None = None,
    say: Callable[[str], None] = lambda message: None,
    verbose: bool = False,
) -> Training:
    """Build a run, in an order that finds cheap mistakes first.

    Args:
        recipe: The resolved recipe.
        folder: The run folder; nothing is written to it.
        process: This rank.
        prepared: Tokenizer and encoded splits.
        resume_point: The start of a resumed run; None for a new run.
        say: Prints a message.
        verbose: Show DeepSpeed's own messages.

    Raises:
        UserError: If data, sizes, weights or patterns do not fit the recipe.
    """
    train, data = recipe.train, recipe.data
    schedule: Schedule = train.schedule.build()
    examples = prepared.splits["train"].examples(data.length, data.stride)
    steps = train.num_steps(len(examples), data.length)
    assert steps is not None, "a resolved recipe has one of epochs, steps and tokens"
    if resume_point is not None and resume_point.state.step > steps:
        raise UserError(
            f"the run has already done {plural(resume_point.state.step, 'step')}, not {steps}; raise train.steps"
        )
    start = find_start(train) if resume_point is None else None
    model = build_model(
        recipe.model,
        vocabulary=prepared.tokenizer.size,
        max_length=data.length,
        max_loops=schedule.bounds[1],
        mean_loops=schedule.mean,
        seed=recipe.seed if resume_point is None and start is None else None,
    )
    objective = build_objective(recipe.objective)
    if resume_point is not None:
        load_parameters(resume_point.checkpoint, model, objective)
    elif start is not None:
        load_first_weights(model, start)
    freeze(model, train.trainable)
    parameters = count_parameters(model)  # before ZeRO-3 splits them
    state = None if resume_point is None else resume_point.state
    micro = _micro_batch(recipe, model, objective, schedule, process, state)
    sizes = BatchSizes.of(train.batch, micro, process.world)
    config = deepspeed_config(sizes, train.clip, train.deepspeed)
    rng.seed_all(recipe.seed, process.rank)
    engine = build_engine(recipe, model, objective, config, process, verbose=verbose)
    if start is not None and train.start_optimizer:
        load_first_optimizer(start, engine, recipe)
    average = WeightAverage.from_recipe(train.ema, model, steps)
    if resume_point is not None and not load_rest(resume_point.checkpoint, engine, process, average):
        say(f"rank {process.rank} was not part of the run: its random generators are seeded anew")
    plan = StepPlan(
        num_steps=steps,
        sizes=sizes,
        data=Steps(examples, Sampler(len(examples), recipe.seed), sizes, process.rank),
        sampler=LoopSampler(schedule, seed=recipe.seed, per=train.loops_per, backprop=train.backprop, num_steps=steps),
        lr=train.lr.build(),
        flops=_step_flops(recipe, model, objective, schedule),
    )
    return Training(
        recipe=recipe,
        folder=folder,
        process=process,
        prepared=prepared,
        resume_point=resume_point,
        start=start,
        schedule=schedule,
        num_examples=len(examples),
        parameters=parameters,
        deepspeed=config,
        engine=engine,
        average=average,
        plan=plan,
        state=TrainState(step=0, sequences=0, tokens=0, micro=micro) if state is None else replace(state, micro=micro),
        checkpoints=CheckpointPolicy(
            recipe,
            folder,
            process,
            prepared.tokenizer,
            engine,
            average,
            say,
            newest=None if resume_point is None else resume_point.checkpoint,
        ),
        evaluation=EvaluationHook(recipe, folder, prepared, engine, process, average, steps),
    )


def build_engine(
    recipe: Recipe,
    model: LoopedModel,
    objective: Objective,
    config: dict[str, Any],
    process: Process,
    *,
    verbose: bool = False,
) -> Engine:
    """Move model and objective to their device, build the optimizer, and wrap them in DeepSpeed."""
    train = recipe.train
    module = TrainingModule(model, objective, seed=recipe.seed, precision=train.precision)
    module.to(process.device).train()
    model.checkpointing = train.checkpointing
    if train.compile:
        model.compile_blocks()
    optimizer = train.optimizer.build().build(parameter_groups(module))
    return Engine(module, optimizer, config, process, verbose=verbose)


def _micro_batch(
    recipe: Recipe,
    model: LoopedModel,
    objective: Objective,
    schedule: Schedule,
    process: Process,
    state: TrainState | None,
) -> int:
    """Sequences of a forward pass; ``auto`` keeps those of a resumed run, or takes the most that fit into memory."""
    train = recipe.train
    if train.micro_batch != "auto":
        return train.micro_batch
    if state is not None and train.batch % (state.micro * process.world) == 0:
        return state.micro
    memory = estimate(model, objective.supervision, recipe, schedule, process.world, process.device.type)
    budget = memory_budget(process.device)
    return largest_micro(train.batch, process.world, lambda micro: memory.total(micro) <= budget)


def _step_flops(recipe: Recipe, model: LoopedModel, objective: Objective, schedule: Schedule) -> StepFlops | None:
    if model.stops:  # the number of loops depends on the data
        return None
    try:
        return StepFlops(model, objective.supervision, length=recipe.data.length, max_loops=schedule.bounds[1])
    except (RuntimeError, NotImplementedError):  # a model that cannot run on meta is trained without MFU
        return None
