"""Estimate the memory of training without running it: states, activations, logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from loopkit.components.schedule import Schedule
from loopkit.components.supervision import Supervision
from loopkit.cost.activation_memory import fit_saved_bytes
from loopkit.errors import UserError
from loopkit.evaluation.audit.preflight import refuse_what_does_not_run
from loopkit.model import LoopedModel
from loopkit.model.cross_entropy import LOGITS
from loopkit.model.parameter_groups import parameter_groups
from loopkit.recipe import Recipe

MAX_LIVE_PARAMETERS = 1_000_000_000
"""DeepSpeed's default of ``stage3_max_live_parameters``: elements that ZeRO-3 keeps gathered at most."""
BUCKET_SIZE = 50_000_000
"""``reduce_bucket_size`` of the generated configuration: elements of the buckets in which gradients are reduced."""

CPU_FRAGMENTATION = 1.25
"""Resident bytes per allocated byte on a CPU, where freed temporaries leave holes between live tensors:
1.20 to 1.29 in four settings of the 44M recipe (``tests/training/peak.py``), none of which recomputed the core."""


@dataclass(frozen=True)
class States:
    """Bytes that stay allocated through a step on one device, independent of the batch.

    Args:
        parameters: fp32 weights.
        gradients: fp32 gradients.
        optimizer: fp32 state of the optimizer, two moments for AdamW; 0 if it is offloaded.
        buffers: Gradient buckets, and under ZeRO-3 the gathered parameters.
        average: fp32 average of the trained weights; 0 without ``train.ema``.
    """

    parameters: int
    gradients: int
    optimizer: int
    buffers: int = 0
    average: int = 0

    @classmethod
    def of(
        cls, count: int, trained: int, moments: int, zero: Mapping[str, Any], world: int, averaged: int = 0
    ) -> States:
        """Compute the states of a model on one of several ranks.

        Args:
            count: Parameters.
            trained: Trained parameters.
            moments: Numbers in the optimizer state.
            zero: ``zero_optimization`` of the DeepSpeed configuration.
            world: Ranks.
            averaged: Parameters with an average.
        """
        stage = int(zero.get("stage", 0))
        offloaded = "offload_optimizer" in zero and zero["offload_optimizer"].get("device", "cpu") != "none"
        buffers = 0
        if world > 1:
            buffers = 4 * min(int(zero.get("reduce_bucket_size", BUCKET_SIZE)), trained)
        if stage == 3:
            # a shared core is used again within a few layers, so it stays gathered
            buffers += 4 * min(int(zero.get("stage3_max_live_parameters", MAX_LIVE_PARAMETERS)), count)
        return cls(
            parameters=4 * count // (world if stage == 3 else 1),
            gradients=4 * trained // (world if stage >= 2 else 1),
            optimizer=0 if offloaded else 4 * moments // (world if stage >= 1 else 1),
            buffers=buffers,
            average=4 * averaged // (world if stage == 3 else 1),
        )

    @property
    def total(self) -> int:
        """The sum."""
        return self.parameters + self.gradients + self.optimizer + self.buffers + self.average


@dataclass(frozen=True)
class Activations:
    """Bytes of one forward and backward pass.

    Args:
        fixed: Bytes independent of the batch: matrices in bf16, the gradient of the head.
        per_sequence: Bytes per sequence of a micro-batch: activations, states, readouts.
        last_loop: Part of ``per_sequence`` that the backward pass has freed when every weight of the core has a
            gradient: the last loop.
        recomputed: Part of ``per_sequence`` that exists in the backward pass only: the loop that is recomputed.
        logits_per_sequence: Logits of a sequence at all loops with a readout.
        logit: Bytes of a logit with its gradient.
        block: Bytes per sequence in the backward pass: gradients of one block's activations.
    """

    fixed: int
    per_sequence: int
    last_loop: int
    recomputed: int
    logits_per_sequence: int
    logit: int = 10
    block: int = 0

    def stored(self, micro: int) -> int:
        """Return the peak bytes of a micro-batch, without logits."""
        return self.fixed + micro * self.per_sequence

    def logits(self, micro: int) -> int:
        """Return the bytes of the logits that exist at once: equal chunks of at most ``LOGITS``."""
        count = micro * self.logits_per_sequence
        return self.logit * -(-count // max(-(-count // LOGITS), 1))

    def peak(self, micro: int, states: States, accumulating: bool) -> int:
        """Return the peak bytes, including states.

        The end of the forward pass has logits, and gradients of earlier micro-steps only; the backward pass has
        gradients and no logits.

        Args:
            micro: Sequences of the micro-batch.
            states: Bytes that stay allocated through the step.
            accumulating: Whether gradients of earlier micro-steps exist.
        """
        earlier = states.gradients if accumulating else 0
        forward = self.stored(micro) - micro * self.recomputed + self.logits(micro) + earlier
        backward = self.stored(micro) - micro * self.last_loop + micro * self.block + states.gradients
        return states.total - states.gradients + max(forward, backward)


@dataclass(frozen=True)
class Memory:
    """Bytes of training on one device.

    Args:
        states: Bytes that stay allocated through a step.
        activations: Bytes of one forward and backward pass.
        share: Sequences of an optimizer step on this device.
    """

    states: States
    activations: Activations
    share: int

    def total(self, micro: int) -> int:
        """Return the peak bytes for a micro-batch of ``micro`` sequences."""
        return self.activations.peak(micro, self.states, accumulating=micro < self.share)


def estimate(
    model: LoopedModel,
    supervision: Supervision,
    recipe: Recipe,
    schedule: Schedule,
    world: int = 1,
    device: str = "cpu",
) -> Memory:
    """Estimate the memory of a recipe's deepest training step, without regularizers.

    Args:
        model: The model, with its frozen parameters; may be on ``meta``.
        supervision: Determines which loops have a readout.
        recipe: Length, precision, checkpointing, batch and ZeRO stage.
        schedule: Determines the maximum number of loops.
        world: Ranks that share the states under ZeRO.
        device: ``cpu``, where freed temporaries leave holes, or ``cuda``.

    Raises:
        UserError: If the model does not run on ``meta``; the message names the setting that needs no estimate.
    """
    zero = recipe.train.deepspeed.get("zero_optimization", {})
    states = States.of(*count_states(model, recipe), zero, world, count_averaged(model, recipe))
    checkpointing = recipe.train.checkpointing
    activations = estimate_activations(model, supervision, recipe, schedule, checkpointing, device)
    return Memory(states, activations, max(recipe.train.batch // world, 1))


def count_states(model: nn.Module, recipe: Recipe) -> tuple[int, int, int]:
    """Return the numbers of parameters, of trained parameters, and of numbers in the optimizer state."""
    parameters = list(model.parameters())
    moments = recipe.train.optimizer.build().state_numbers(parameter_groups(model))
    return sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad), moments


def count_averaged(model: nn.Module, recipe: Recipe) -> int:
    """Return the number of parameters of which ``train.ema`` keeps an average."""
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return 0 if recipe.train.ema.decay is None else trained


def estimate_activations(
    model: LoopedModel,
    supervision: Supervision,
    recipe: Recipe,
    schedule: Schedule,
    checkpointing: bool,
    device: str = "cpu",
    fit: Callable[..., tuple[int, int, int]] = fit_saved_bytes,
) -> Activations:
    """Estimate the activations of a recipe's deepest step; see ``estimate``.

    Args:
        fit: ``fit_saved_bytes``, or a cache of it for several estimates of one model.
    """
    train, length, total = recipe.train, recipe.data.length, schedule.bounds[1]
    backprop = total if train.backprop == "all" else min(train.backprop, total)
    autocast = train.precision == "bf16_autocast"
    options = {"autocast": autocast}
    try:
        fixed, per_sequence, per_loop = fit(model, length, checkpointing=checkpointing, **options)
        # the activations of one loop exist at a time
        recomputed = fit(model, length, checkpointing=False, **options)[2] if checkpointing else 0
    except (RuntimeError, NotImplementedError) as error:
        refuse_what_does_not_run(recipe, error)
        problem = f"the memory of this model cannot be estimated, because it does not run on meta: {error}"
        raise UserError(f"{problem}; set train.micro_batch to a number") from error
    num_readouts = len(supervision.loops(total))
    fragmentation = CPU_FRAGMENTATION if device == "cpu" else 1.0
    states = (total + 1) * length * model.width * 4
    readouts = 2 * num_readouts * length * model.width * 4  # and their gradients
    # the head's gradient, its accumulator, and the matrix in bf16, which the CPU converts to fp32 again
    head = 4 + 4 + 2 + (4 if autocast and device == "cpu" else 0)
    return Activations(
        fixed=round(fragmentation * (fixed + head * model.vocabulary * model.width)),
        per_sequence=round(fragmentation * (per_sequence + backprop * per_loop + recomputed + states + readouts)),
        last_loop=0 if checkpointing else round(fragmentation * per_loop),
        recomputed=round(fragmentation * recomputed),
        logits_per_sequence=num_readouts * length * model.vocabulary,
        block=round(fragmentation * (recomputed or per_loop) / max(model.core_layers, 1)),
        # log-probabilities, which become the gradient; the logits or the bf16 gradient; a temporary copy
        logit=4 + 4 + (2 if autocast else 0),
    )
