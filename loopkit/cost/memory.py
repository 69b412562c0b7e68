"""How much memory training takes, estimated without running anything: states, activations, logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from loopkit.components.schedule import Schedule
from loopkit.components.supervision import Supervision
from loopkit.cost.activation_memory import straight_line
from loopkit.errors import UserError
from loopkit.evaluation.audit.preflight import refuse_what_does_not_run
from loopkit.model import LoopedModel
from loopkit.model.cross_entropy import LOGITS
from loopkit.model.parameter_groups import parameter_groups
from loopkit.recipe import Recipe

LIVE = 1_000_000_000
"""Elements that ZeRO-3 keeps gathered at most: DeepSpeed's ``stage3_max_live_parameters``, if the recipe is silent."""
BUCKET = 50_000_000
"""Elements of the buckets in which gradients are reduced: ``reduce_bucket_size`` of the generated configuration."""

FRAGMENTS = 1.25
"""Resident bytes for each byte that a pass keeps on a CPU, where freed temporaries leave holes between what is kept:
1.20 to 1.29 in four settings of the 44M recipe (``tests/training/peak.py``), none of which recomputed the core."""


@dataclass(frozen=True)
class States:
    """Bytes of what lives through a step on one device, whatever the batch.

    Args:
        parameters: fp32 weights.
        gradients: fp32 gradients.
        optimizer: fp32 state of the optimizer, two moments for AdamW; 0 where it is offloaded.
        buffers: Buckets of gradients under way, and under ZeRO-3 the parameters that are gathered at once.
    """

    parameters: int
    gradients: int
    optimizer: int
    buffers: int = 0

    @classmethod
    def of(cls, count: int, trained: int, moments: int, zero: Mapping[str, Any], world: int) -> States:
        """The states of a model on one of several ranks.

        Args:
            count: Parameters.
            trained: Those of them that are trained.
            moments: Numbers that the optimizer keeps.
            zero: ``zero_optimization`` of the DeepSpeed configuration.
            world: Ranks.
        """
        stage = int(zero.get("stage", 0))
        offloaded = "offload_optimizer" in zero and zero["offload_optimizer"].get("device", "cpu") != "none"
        buffers = 0
        if world > 1:
            buffers = 4 * min(int(zero.get("reduce_bucket_size", BUCKET)), trained)
        if stage == 3:
            # a shared core is used again within a few layers, so what has been gathered of it stays
            buffers += 4 * min(int(zero.get("stage3_max_live_parameters", LIVE)), count)
        return cls(
            parameters=4 * count // (world if stage == 3 else 1),
            gradients=4 * trained // (world if stage >= 2 else 1),
            optimizer=0 if offloaded else 4 * moments // (world if stage >= 1 else 1),
            buffers=buffers,
        )

    @property
    def total(self) -> int:
        """All of them."""
        return self.parameters + self.gradients + self.optimizer + self.buffers


@dataclass(frozen=True)
class Activations:
    """Bytes of one forward and backward pass.

    Args:
        fixed: What a pass keeps whatever the batch: matrices in bf16, the gradient of the head.
        per_sequence: What each sequence of a micro-batch adds: activations, states, readouts.
        last_loop: Of that, what the backward pass has let go of by the time it has a gradient for every weight of the
            core: the last loop.
        recomputed: Of that, what is not there in the forward pass: the one loop that is being recomputed.
        logits_per_sequence: Number of logits of a sequence at all loops that are read; only so many are there at once.
        logit: Bytes of a logit with its gradient.
        block: What each sequence adds in the backward pass: the gradients of one block's activations.
    """

    fixed: int
    per_sequence: int
    last_loop: int
    recomputed: int
    logits_per_sequence: int
    logit: int = 10
    block: int = 0

    def kept(self, micro: int) -> int:
        """What a micro-batch of so many sequences keeps at most, logits apart."""
        return self.fixed + micro * self.per_sequence

    def logits(self, micro: int) -> int:
        """Bytes of the logits that are there at once: equal parts of at most ``LOGITS``."""
        count = micro * self.logits_per_sequence
        return self.logit * -(-count // max(-(-count // LOGITS), 1))

    def peak(self, micro: int, states: States, accumulating: bool) -> int:
        """Most bytes that are there at once, states included.

        At the end of the forward pass there are logits, and gradients only of earlier micro-steps; in the backward pass
        there are gradients, and no logits.

        Args:
            micro: Sequences.
            states: What lives through the step.
            accumulating: Whether earlier micro-steps have left gradients.
        """
        earlier = states.gradients if accumulating else 0
        forward = self.kept(micro) - micro * self.recomputed + self.logits(micro) + earlier
        backward = self.kept(micro) - micro * self.last_loop + micro * self.block + states.gradients
        return states.total - states.gradients + max(forward, backward)


@dataclass(frozen=True)
class Memory:
    """Bytes of training on one device.

    Args:
        states: What lives through a step.
        activations: What a pass needs.
        share: Sequences of an optimizer step on this device.
    """

    states: States
    activations: Activations
    share: int

    def total(self, micro: int) -> int:
        """The peak, for a micro-batch of so many sequences."""
        return self.activations.peak(micro, self.states, accumulating=micro < self.share)


def estimate(
    model: LoopedModel,
    supervision: Supervision,
    recipe: Recipe,
    schedule: Schedule,
    world: int = 1,
    device: str = "cpu",
) -> Memory:
    """Estimate the memory of a recipe's deepest training step. Regularizers are not counted.

    Args:
        model: Says which parameters are trained; may be on ``meta``.
        supervision: Which loops are read.
        recipe: Length, precision, checkpointing, batch and ZeRO stage.
        schedule: The most loops.
        world: Ranks that share the states under ZeRO.
        device: ``cpu``, where freed temporaries leave holes, or ``cuda``.

    Raises:
        ValueError: If the model does not run at all, or not on ``meta``; then with the setting that needs no estimate.
    """
    states = States.of(*sizes(model, recipe), recipe.train.deepspeed.get("zero_optimization", {}), world)
    checkpointing = recipe.train.checkpointing
    found = activations(model, supervision, recipe, schedule, checkpointing, device)
    return Memory(states, found, max(recipe.train.batch // world, 1))


def sizes(model: nn.Module, recipe: Recipe) -> tuple[int, int, int]:
    """Parameters, those of them that are trained, and numbers that the recipe's optimizer keeps for them."""
    parameters = list(model.parameters())
    moments = recipe.train.optimizer.build().state_numbers(parameter_groups(model))
    return sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad), moments


def activations(
    model: LoopedModel,
    supervision: Supervision,
    recipe: Recipe,
    schedule: Schedule,
    checkpointing: bool,
    device: str = "cpu",
) -> Activations:
    """What a pass of a recipe's deepest step needs; see ``estimate``."""
    train, length, total = recipe.train, recipe.data.length, schedule.bounds[1]
    backprop = total if train.backprop == "all" else min(train.backprop, total)
    autocast = train.precision == "bf16_autocast"
    options = {"autocast": autocast}
    try:
        fixed, once, per_loop = straight_line(model, length, checkpointing=checkpointing, **options)
        # one loop at a time is there in full
        recomputed = straight_line(model, length, checkpointing=False, **options)[2] if checkpointing else 0
    except (RuntimeError, NotImplementedError) as error:
        refuse_what_does_not_run(recipe, error)
        why = f"the memory of this model cannot be estimated, because it does not run on meta: {error}"
        raise UserError(f"{why}; set train.micro_batch to a number") from error
    reads = len(supervision.loops(total))
    spread = FRAGMENTS if device == "cpu" else 1.0
    states = (total + 1) * length * model.width * 4
    readouts = 2 * reads * length * model.width * 4  # and their gradients
    return Activations(
        # the head's gradient, its sum so far, and the matrix in bf16; the CPU widens that one again for its sums
        fixed=round(
            spread * (fixed + (4 + 4 + 2 + (4 if autocast and device == "cpu" else 0)) * model.vocabulary * model.width)
        ),
        per_sequence=round(spread * (once + backprop * per_loop + recomputed + states + readouts)),
        last_loop=0 if checkpointing else round(spread * per_loop),
        recomputed=round(spread * recomputed),
        logits_per_sequence=reads * length * model.vocabulary,
        block=round(spread * (recomputed or per_loop) / max(model.core_layers, 1)),
        # log-probabilities, which become the gradient, beside the logits or the narrow gradient; and a copy on the way
        logit=4 + 4 + (2 if autocast else 0),
    )
