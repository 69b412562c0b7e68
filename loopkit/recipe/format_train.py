"""The recipe's section `train`: duration, optimizer, checkpoints, health checks. See ``format.py``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, MinLen
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from loopkit.registry.options import Fraction, Share
from loopkit.registry.spec import Spec, use


@dataclass(frozen=True, kw_only=True)
class BestConfig:
    """The checkpoint with the best evaluation so far, which is kept; a bare name is the figure.

    Args:
        figure: A figure of the evaluation at one depth, such as loss or word_ppl; null keeps no best checkpoint.
        depth: Number of loops; null means the largest depth that is both evaluated and trained.
        goal: Whether a smaller or a larger value is better.
    """

    short: ClassVar[str] = "figure"

    figure: str | None = None
    depth: PositiveInt | None = None
    goal: Literal["min", "max"] = "min"


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written and how many are kept; a bare number is the steps between them.

    Args:
        every: Optimizer steps between checkpoints; null means only at the start, at the end and when interrupted.
        keep: Number of newest checkpoints to keep.
        best: Best checkpoint to keep in addition; a checkpoint is then written before every evaluation.
    """

    short: ClassVar[str] = "every"

    every: PositiveInt | None = 1000
    keep: PositiveInt = 2
    best: BestConfig


@dataclass(frozen=True, kw_only=True)
class StateNormConfig:
    """A bound on the state; a bare number is the limit.

    Args:
        limit: Largest mean norm of the state after any loop; null disables the check.
        action: Reaction to a larger norm.
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
        window: Number of recent losses in the median; the check starts once that many exist.
        action: Reaction to a spike.
    """

    short: ClassVar[str] = "num_std"

    num_std: PositiveFloat | None = None
    window: Annotated[PositiveInt, Ge(8)] = 100
    action: Literal["warn", "stop", "skip_step", "rewind"] = "skip_step"


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """Reactions to faults in training. `skip_step` drops an update; `rewind` returns to the last complete checkpoint
    and continues with other data.

    Args:
        not_finite: Reaction to a loss, state or gradient that is not finite.
        state_norm: Bound on the norm of the state.
        loss_spike: Bound on sudden rises of the loss.
        max_skips: Consecutive skipped updates after which the run stops.
        max_rewinds: Rewinds after which the run stops.
        hang: Seconds without progress after which a process writes its stacks and exits; null disables the watchdog.
    """

    not_finite: Literal["stop", "skip_step", "rewind"] = "stop"
    state_norm: StateNormConfig
    loss_spike: LossSpikeConfig
    max_skips: PositiveInt = 10
    max_rewinds: PositiveInt = 3
    hang: PositiveFloat | None = 1800.0


@dataclass(frozen=True, kw_only=True)
class EmaConfig:
    """Exponential moving average of the trained weights; a bare number is the decay.

    Args:
        decay: Share of the average that an optimizer step keeps; null disables averaging.
        start: Optimizer steps, or share of the run, until which the average equals the weights.
    """

    short: ClassVar[str] = "decay"

    decay: Fraction | None = None
    start: NonNegativeInt | Share = 0.1


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training settings. Exactly one of epochs, steps and tokens sets the duration.

    Args:
        epochs: Passes over the training windows.
        steps: Optimizer steps.
        tokens: Training tokens, counting repetition.
        batch: Sequences per optimizer step over all ranks.
        micro_batch: Sequences per forward pass on one rank; auto is the largest divisor of the batch that fits.
        schedule: Number of loops per step; a bare number is a fixed count.
        backprop: Number of last loops that backpropagate.
        loops_per: Scope of one draw of the schedule.
        optimizer: The optimizer.
        lr: Learning rate schedule; a bare number is a constant rate.
        clip: Largest global gradient norm; null means no clipping.
        ema: Average of the weights, which checkpoints contain in addition.
        precision: Arithmetic of the forward pass; parameters and the residual stream are fp32 in both.
        compile: Whether blocks are compiled.
        checkpointing: Whether activations inside the core are recomputed instead of stored.
        device: Where training runs; auto takes a GPU if there is one.
        start_from: Run, checkpoint or imported folder that provides the initial weights.
        start_weights: Weights of that checkpoint; ema is their average.
        start_optimizer: Whether training also starts with the optimizer state of that checkpoint.
        trainable: Glob patterns of the trained parameters.
        checkpoint: When checkpoints are written.
        health: Reactions to faults in training.
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
    ema: EmaConfig
    precision: Literal["bf16_autocast", "fp32"] = "bf16_autocast"
    compile: bool = False
    checkpointing: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    start_from: Path | None = None
    start_weights: Literal["trained", "ema"] = "trained"
    start_optimizer: bool = False
    trainable: Annotated[list[str], MinLen(1)] = field(default_factory=lambda: ["*"])
    checkpoint: CheckpointConfig
    health: HealthConfig
    log_every: PositiveInt = 1
    deepspeed: dict[str, Any] = field(default_factory=dict)

    def num_steps(self, num_examples: int | None, length: int) -> int | None:
        """Compute the optimizer steps of a run, rounded up, at least 1.

        Args:
            num_examples: Windows or examples in one epoch; None if unknown.
            length: Tokens in one of them.

        Returns:
            The steps; None if they depend on an unknown number of examples.
        """
        if self.steps is not None:
            return self.steps
        if self.tokens is not None:
            return max(math.ceil(self.tokens / (self.batch * length)), 1)
        if self.epochs is None or num_examples is None:
            return None
        return max(math.ceil(self.epochs * num_examples / self.batch), 1)
