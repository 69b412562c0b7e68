"""The recipe's section `train`: how long, with what, and what is done when it goes wrong. See ``format.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, MinLen
from pydantic import PositiveFloat, PositiveInt

from loopkit.registry.spec import Spec, use


@dataclass(frozen=True, kw_only=True)
class BestConfig:
    """The checkpoint that stays because its evaluation was the best so far; a bare name is the figure.

    Args:
        figure: A figure of the evaluation at one depth, such as loss or word_ppl; null means that none stays for it.
        depth: At how many loops; null means the deepest that was evaluated and trained.
        goal: Whether less or more of it is better.
    """

    short: ClassVar[str] = "figure"

    figure: str | None = None
    depth: PositiveInt | None = None
    goal: Literal["min", "max"] = "min"


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written and how many stay; a bare number is the steps between them.

    Args:
        every: Optimizer steps between checkpoints; null means only at the start, at the end and when interrupted.
        keep: How many of the newest stay.
        best: Which one stays besides; a checkpoint is then written before every evaluation.
    """

    short: ClassVar[str] = "every"

    every: PositiveInt | None = 1000
    keep: PositiveInt = 2
    best: BestConfig


@dataclass(frozen=True, kw_only=True)
class StateNormConfig:
    """A bound on the state; a bare number is the limit.

    Args:
        limit: Largest mean norm of the state after any loop; null means that none is too large.
        action: What is done about a larger one.
    """

    short: ClassVar[str] = "limit"

    limit: PositiveFloat | None = None
    action: Literal["warn", "stop", "skip_step", "rewind"] = "stop"


@dataclass(frozen=True, kw_only=True)
class LossSpikeConfig:
    """A bound on sudden rises of the loss; a bare number is num_std.

    Args:
        num_std: Distance above the median of the recent losses that counts as a spike, in robust standard deviations;
            null disables the check.
        window: How many recent losses are the measure; until there are so many, nothing is a spike.
        action: What is done about one.
    """

    short: ClassVar[str] = "num_std"

    num_std: PositiveFloat | None = None
    window: Annotated[PositiveInt, Ge(8)] = 100
    action: Literal["warn", "stop", "skip_step", "rewind"] = "skip_step"


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """What is done when training goes wrong. Skipping drops an update; rewinding goes back to the last whole
    checkpoint and on with other data.

    Args:
        not_finite: What is done about a loss, a state or a gradient that is not a finite number.
        state_norm: What is done about a state that grows too large.
        loss_spike: What is done about a loss that rises too suddenly.
        max_skips: Updates skipped one after the other before the run is stopped after all.
        max_rewinds: Rewinds before the run is stopped after all.
        hang: Seconds without progress after which a process writes down where it stands and ends; null waits for ever.
    """

    not_finite: Literal["stop", "skip_step", "rewind"] = "stop"
    state_norm: StateNormConfig
    loss_spike: LossSpikeConfig
    max_skips: PositiveInt = 10
    max_rewinds: PositiveInt = 3
    hang: PositiveFloat | None = 1800.0


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the model is trained. Exactly one of epochs, steps and tokens says how long.

    Args:
        epochs: Passes over the training windows.
        steps: Optimizer steps.
        tokens: Training tokens, counting repetition.
        batch: Sequences per optimizer step over all ranks.
        micro_batch: Sequences per forward pass on one rank; auto is the largest divisor of the batch that fits.
        schedule: How many loops a step runs; a bare number is a fixed count.
        backprop: How many of the last loops carry gradient.
        loops_per: What one draw of the schedule serves.
        optimizer: How gradients become updates.
        lr: The learning rate at each step; a bare number is a constant rate.
        clip: Largest global gradient norm; null means no clipping.
        precision: Arithmetic of the forward pass; parameters and the residual stream are fp32 in both.
        compile: Whether blocks are compiled.
        checkpointing: Whether activations inside the core are recomputed instead of kept.
        device: Where training runs; auto takes a GPU if there is one.
        start_from: A run, checkpoint or imported folder whose weights are the first ones.
        trainable: Glob patterns of the parameters that are trained.
        checkpoint: When checkpoints are written.
        health: What is done when training goes wrong.
        log_every: Optimizer steps between lines of metrics.jsonl.
        deepspeed: Keys added to the generated DeepSpeed configuration.
    """

    exactly_one: ClassVar[tuple[str, ...]] = ("epochs", "steps", "tokens")

    epochs: PositiveFloat | None = None
    steps: PositiveInt | None = None
    tokens: PositiveInt | None = None
    batch: PositiveInt
    micro_batch: PositiveInt | Literal["auto"] = "auto"
    schedule: Annotated[Spec, "schedule"] = use("fixed")
    backprop: PositiveInt | Literal["all"] = "all"
    loops_per: Literal["step", "micro_step", "sequence"] = "step"
    optimizer: Annotated[Spec, "optimizer"] = use("adamw")
    lr: Annotated[Spec, "lr"] = use("constant")
    clip: PositiveFloat | None = 1.0
    precision: Literal["bf16_autocast", "fp32"] = "bf16_autocast"
    compile: bool = False
    checkpointing: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    start_from: Path | None = None
    trainable: Annotated[list[str], MinLen(1)] = field(default_factory=lambda: ["*"])
    checkpoint: CheckpointConfig
    health: HealthConfig
    log_every: PositiveInt = 1
    deepspeed: dict[str, Any] = field(default_factory=dict)
