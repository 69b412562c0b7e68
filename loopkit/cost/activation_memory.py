"""Count the bytes that a forward pass saves for its backward, from shapes on ``meta``.

The bytes are linear in the number of loops and of sequences, so one and two of each determine them.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from loopkit.loop import Batch, Loops
from loopkit.model import LoopedModel, on_meta


def fit_saved_bytes(model: LoopedModel, length: int, **options: bool) -> tuple[int, int, int]:
    """Return the bytes saved for backward: constant, per sequence, and per loop of a sequence."""
    model = on_meta(model)
    k1_b1, k2_b1, k1_b2, k2_b2 = (
        _saved_bytes(model, loops, sequences, length, **options)
        for loops, sequences in ((1, 1), (2, 1), (1, 2), (2, 2))
    )
    per_loop = (k2_b2 - k2_b1) - (k1_b2 - k1_b1)
    return 2 * k1_b1 - k1_b2, k1_b2 - k1_b1 - per_loop, per_loop


def saved_bytes(
    model: LoopedModel,
    loops: int,
    sequences: int,
    length: int,
    *,
    autocast: bool,
    checkpointing: bool,
) -> int:
    """Return the bytes that a forward pass up to the readout saves for its backward, without parameters.

    Args:
        model: The model; a copy of it runs on ``meta``.
        loops: Loops of the pass.
        sequences: Sequences in it.
        length: Tokens of each.
        autocast: Whether matrix products run in bf16.
        checkpointing: Whether the core is recomputed.
    """
    return _saved_bytes(on_meta(model), loops, sequences, length, autocast=autocast, checkpointing=checkpointing)


def _saved_bytes(
    model: LoopedModel, loops: int, sequences: int, length: int, *, autocast: bool, checkpointing: bool
) -> int:
    """The same of a model that is on ``meta`` and belongs to the caller."""
    model.train()
    model.checkpointing = checkpointing
    parameters = {tensor.untyped_storage()._cdata for tensor in [*model.parameters(), *model.buffers()]}
    saved: dict[int, torch.UntypedStorage] = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            saved[storage._cdata] = storage
        return tensor

    batch = Batch.of(torch.zeros(sequences, length, dtype=torch.int64, device="meta"))
    precision = _Bf16MatmulMode() if autocast else nullcontext()
    with _FusedAttentionMode(), precision, saved_tensors_hooks(save, lambda tensor: tensor):
        trajectory = model.run(batch, Loops.fixed(loops))
        trajectory.readout(loops)
    return sum(storage.nbytes() for storage in saved.values())


class _FusedAttentionMode(TorchFunctionMode):
    """Attention with the memory of fused kernels, which ``meta`` lacks: they recompute the weights in the backward
    pass. With dropout there is no such kernel."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not F.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        return _FusedAttention.apply(*args[:3])


class _FusedAttention(torch.autograd.Function):
    """Saves queries, keys, values, the output, and the log-sum-exp of each row."""

    @staticmethod
    def forward(ctx: Any, q_BHTR: Tensor, k_BHSR: Tensor, v_BHSR: Tensor) -> Tensor:
        out = torch.empty_like(q_BHTR)
        ctx.save_for_backward(q_BHTR, k_BHSR, v_BHSR, out, q_BHTR[..., 0].float())
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


class _Bf16MatmulMode(TorchFunctionMode):
    """Cast the operands of matrix products to bf16, as autocast does on devices other than ``meta``."""

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
            args, kwargs = tree_map(self._to_bf16, (args, kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _to_bf16(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype is not torch.float32:
            return value
        if not isinstance(value, nn.Parameter):
            return value.to(torch.bfloat16)
        if id(value) not in self._weights:  # autocast casts a weight once for all loops
            self._weights[id(value)] = value.to(torch.bfloat16)
        return self._weights[id(value)]
