"""How much memory training takes, estimated without running anything.

Everything is counted from shapes on ``meta``: what a forward pass keeps for its backward, at one and two loops and for
one and two sequences, from which any other number follows in a straight line.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from loopkit.components.schedule import Schedule
from loopkit.components.supervision import Supervision
from loopkit.loop import Batch, Loops
from loopkit.model import LoopedModel, on_meta
from loopkit.model.cross_entropy import LOGITS
from loopkit.recipe import Recipe


@dataclass(frozen=True)
class Memory:
    """Bytes of training on one device.

    Args:
        parameters: fp32 weights.
        gradients: fp32 gradients.
        optimizer: Two fp32 moments, as AdamW has.
        fixed: What a pass keeps whatever the batch: matrices in bf16, the gradient of the head.
        per_sequence: What each sequence of a micro-batch adds: activations, states, readouts.
        logits_per_sequence: Logits of a sequence at all loops that are read; only so many are there at once.
    """

    parameters: int
    gradients: int
    optimizer: int
    fixed: int
    per_sequence: int
    logits_per_sequence: int

    def total(self, micro: int) -> int:
        """All of it, for a micro-batch of so many sequences."""
        # a logit is there in bf16 and in fp32, its gradient in both
        logits = 10 * min(micro * self.logits_per_sequence, LOGITS)
        return self.parameters + self.gradients + self.optimizer + self.fixed + micro * self.per_sequence + logits


def estimate(
    model: LoopedModel, supervision: Supervision, recipe: Recipe, schedule: Schedule, world: int = 1
) -> Memory:
    """Estimate the memory of a recipe's deepest training step.

    Attention is taken to keep its weights, as it does on a CPU; regularizers are not counted.

    Args:
        model: Says which parameters are trained; may be on ``meta``.
        supervision: Which loops are read.
        recipe: Length, precision, checkpointing and ZeRO stage.
        schedule: The most loops.
        world: Ranks that share the states under ZeRO.

    Raises:
        ValueError: If the model does not run on ``meta``, naming the setting that needs no estimate.
    """
    train, length, total = recipe.train, recipe.data.length, schedule.bounds[1]
    backprop = total if train.backprop == "all" else min(train.backprop, total)
    autocast, checkpointing = train.precision == "bf16_autocast", train.checkpointing
    stage = int(train.deepspeed.get("zero_optimization", {}).get("stage", 0))
    count = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    try:
        fixed, once, per_loop = _straight_line(model, length, autocast, checkpointing)
    except (RuntimeError, NotImplementedError) as error:
        why = f"the memory of this model cannot be estimated, because it does not run on meta: {error}"
        raise ValueError(f"{why}; set train.micro_batch to a number") from error
    loops = backprop * per_loop
    if checkpointing:  # one loop at a time is there in full
        loops += _straight_line(model, length, autocast, False)[2]
    reads = len(supervision.loops(total))
    states = (total + 1) * length * model.width * 4
    readouts = 2 * reads * length * model.width * 4  # and their gradients
    matrix = model.vocabulary * model.width
    return Memory(
        parameters=4 * count // (world if stage == 3 else 1),
        gradients=4 * trained // (world if stage >= 2 else 1),
        optimizer=8 * trained // (world if stage >= 1 else 1),
        fixed=fixed + (4 + 4 + 2) * matrix,
        per_sequence=once + loops + states + readouts,
        logits_per_sequence=reads * length * model.vocabulary,
    )


def _straight_line(model: LoopedModel, length: int, autocast: bool, checkpointing: bool) -> tuple[int, int, int]:
    """Bytes kept for backward: whatever the batch, for each sequence, and for each loop of a sequence."""
    one, two, more, most = (
        saved_bytes(model, loops, sequences, length, autocast=autocast, checkpointing=checkpointing)
        for loops, sequences in ((1, 1), (2, 1), (1, 2), (2, 2))
    )
    per_loop = (most - two) - (more - one)
    return 2 * one - more, more - one - per_loop, per_loop


def saved_bytes(
    model: LoopedModel, loops: int, sequences: int, length: int, *, autocast: bool, checkpointing: bool
) -> int:
    """Bytes that a forward pass in training keeps for its backward, parameters excepted, up to the readout."""
    twin = on_meta(model).train()
    twin.checkpointing = checkpointing
    own = {tensor.untyped_storage()._cdata for tensor in [*twin.parameters(), *twin.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    batch = Batch.of(torch.zeros(sequences, length, dtype=torch.int64, device="meta"))
    with _Bf16Products() if autocast else nullcontext(), saved_tensors_hooks(keep, lambda tensor: tensor):
        trajectory = twin.run(batch, Loops.fixed(loops))
        trajectory.readout(loops)
    return sum(storage.nbytes() for storage in kept.values())


class _Bf16Products(TorchFunctionMode):
    """What autocast does to matrix products, for ``meta`` tensors, which it does not know."""

    PRODUCTS = frozenset(
        {
            F.linear,
            F.scaled_dot_product_attention,
            torch.matmul,
            torch.bmm,
            torch.Tensor.matmul,
            torch.Tensor.__matmul__,
        }
    )

    def __init__(self) -> None:
        super().__init__()
        self._weights: dict[int, Tensor] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in self.PRODUCTS:
            args, kwargs = tree_map(self._narrow, (args, kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _narrow(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype is not torch.float32:
            return value
        if not isinstance(value, nn.Parameter):
            return value.to(torch.bfloat16)
        if id(value) not in self._weights:  # a weight is cast once for all loops
            self._weights[id(value)] = value.to(torch.bfloat16)
        return self._weights[id(value)]
