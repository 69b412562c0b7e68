"""What a forward pass keeps for its backward, counted from shapes on ``meta``.

At one and two loops and for one and two sequences, from which any other number follows in a straight line.
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


def straight_line(model: LoopedModel, length: int, **options: bool) -> tuple[int, int, int]:
    """Bytes kept for backward: whatever the batch, for each sequence, and for each loop of a sequence."""
    one, two, more, most = (
        saved_bytes(model, loops, sequences, length, **options) for loops, sequences in ((1, 1), (2, 1), (1, 2), (2, 2))
    )
    per_loop = (most - two) - (more - one)
    return 2 * one - more, more - one - per_loop, per_loop


def saved_bytes(
    model: LoopedModel,
    loops: int,
    sequences: int,
    length: int,
    *,
    autocast: bool,
    checkpointing: bool,
) -> int:
    """Bytes that a forward pass in training keeps for its backward, parameters excepted, up to the readout.

    Args:
        model: Any; a twin of it runs on ``meta``.
        loops: Loops of the pass.
        sequences: Sequences in it.
        length: Tokens of each.
        autocast: Whether matrix products are in bf16.
        checkpointing: Whether the core is recomputed.
    """
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
    arithmetic = _Bf16Products() if autocast else nullcontext()
    with _Attention(), arithmetic, saved_tensors_hooks(keep, lambda tensor: tensor):
        trajectory = twin.run(batch, Loops.fixed(loops))
        trajectory.readout(loops)
    return sum(storage.nbytes() for storage in kept.values())


class _Attention(TorchFunctionMode):
    """Attention as devices do it, which ``meta`` does not: kernels form the weights again in the backward pass. With
    dropout there is no kernel."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not F.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        return _Lean.apply(*args[:3])


class _Lean(torch.autograd.Function):
    """Keeps queries, keys, values, the result, and the logarithm of each row's sum."""

    @staticmethod
    def forward(ctx: Any, q_BHTR: Tensor, k_BHSR: Tensor, v_BHSR: Tensor) -> Tensor:
        out = torch.empty_like(q_BHTR)
        ctx.save_for_backward(q_BHTR, k_BHSR, v_BHSR, out, q_BHTR[..., 0].float())
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


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
