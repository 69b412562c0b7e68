"""How tokens look at each other. Letters: B sequences, T tokens, D width, H heads, G key heads, S keys, R head size."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.components.position import Position
from loopkit.loop import Step
from loopkit.registry import Divides, Factory, Fraction, register


class Attention(nn.Module):
    """Mixes tokens. Wiring: ``width``, ``position``, ``layer``, ``max_loops``.

    The projection back into the stream is called ``out``: ``init: scaled`` finds it by that name. Nobody may look at a
    key whose position is ``PAD``, nor at a later position than its own.
    """

    cached_numbers: int = 0
    """Numbers per token that one slot of a cache holds."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``[B, T, D]`` to the same shape."""
        raise NotImplementedError

    def roles(self) -> dict[str, tuple[nn.Linear, slice]]:
        """Which output rows of which matrix make the queries ``q``, keys ``k``, values ``v`` and output ``o``.

        Adapters find what they change by these names; a variant without such a matrix leaves its name out.
        """
        return {}

    def stacked_rows(self) -> dict[str, tuple[int, ...]]:
        """Own parameters that hold several matrices one below the other, and the rows of each.

        An optimizer of matrices treats each by itself. Any module may have this method.
        """
        return {}


@register("attention", "causal", paper="arXiv:1706.03762", provides={"double_backward", "cache"})
class CausalAttention(Attention):
    """Softmax attention in which a token sees itself and what came before.

    softmax(q k^T / sqrt(R)) v

    Args:
        heads: Number of query heads.
        kv_heads: Number of key and value heads, each shared by heads / kv_heads query heads. ``None``: ``heads``.
        head_size: Channels of one head. ``None``: width / heads.
        qk_norm: Norm of queries and keys over the channels of a head, before rotation. ``None``: there is none.
        qkv_bias: Whether queries, keys and values have a bias.
        qk_bias: Whether queries and keys alone have one, zero at the start, before norm and rotation (Huginn).
        out_bias: Whether the output projection has a bias.
        dropout: Rate on the attention weights.
        out_dropout: Rate on the output.

    Raises:
        ValueError: If heads does not divide width and head_size is not given, or both biases are asked for.
    """

    def __init__(
        self,
        width: int,
        position: Position,
        layer: int,
        *,
        heads: Annotated[PositiveInt, Divides("width")],
        kv_heads: Annotated[PositiveInt, Divides("heads")] | None = None,
        head_size: PositiveInt | None = None,
        qk_norm: Factory[Norm] | None = None,
        qkv_bias: bool = False,
        qk_bias: bool = False,
        out_bias: bool = False,
        dropout: Fraction = 0.0,
        out_dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        if head_size is None and width % heads:
            raise ValueError(f"attention: {heads} heads do not divide a width of {width}; set heads or head_size")
        self.layer = layer
        self.heads = heads
        self.kv_heads = heads if kv_heads is None else kv_heads
        self.head_size = width // heads if head_size is None else head_size
        self.dropout = dropout
        self.out_dropout = out_dropout
        if heads % self.kv_heads:
            raise ValueError(f"attention: {self.kv_heads} kv_heads do not divide {heads} heads")
        if qkv_bias and qk_bias:
            raise ValueError(
                "attention: qkv_bias already gives queries and keys a bias; set one of qkv_bias and qk_bias"
            )
        self.qkv = nn.Linear(width, (heads + 2 * self.kv_heads) * self.head_size, bias=qkv_bias)
        self.qk_bias = nn.Parameter(torch.zeros((heads + self.kv_heads) * self.head_size)) if qk_bias else None
        self.out = nn.Linear(heads * self.head_size, width, bias=out_bias)
        self.norm_q = None if qk_norm is None else qk_norm(width=self.head_size)
        self.norm_k = None if qk_norm is None else qk_norm(width=self.head_size)
        self.cached_numbers = 2 * self.kv_heads * self.head_size
        self._position = (position,)  # in a tuple, because its parameters belong to the model and not to every layer

    def forward(self, x: Tensor, step: Step) -> Tensor:
        sizes = [count * self.head_size for count in (self.heads, self.kv_heads, self.kv_heads)]
        made = self.qkv(x)
        if self.qk_bias is not None:
            made = made + F.pad(self.qk_bias, (0, sizes[-1])).to(made.dtype)
        q, k, v = (part.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in made.split(sizes, dim=-1))
        if self.norm_q is not None and self.norm_k is not None:
            q, k = self.norm_q(q).to(v.dtype), self.norm_k(k).to(v.dtype)
        q, k = self._position[0].rotate(q, k, step.positions)
        mask = None
        if step.cache is not None:
            slot = (step.k, self.layer)
            k, v, seen = step.cache.extend(slot, k, v, step.positions, step.rows)
            mask = _mask(step.positions, seen)
        elif not step.in_order:
            mask = _mask(step.positions, step.positions)
        if self.kv_heads != self.heads:
            k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))
        mixed = attend(q, k, v, mask, self.dropout if self.training else 0.0)
        return F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), self.out_dropout, self.training)

    def reset_parameters(self) -> None:
        if self.qk_bias is not None:
            nn.init.zeros_(self.qk_bias)

    def roles(self) -> dict[str, tuple[nn.Linear, slice]]:
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "q": (self.qkv, slice(0, queries)),
            "k": (self.qkv, slice(queries, queries + keys)),
            "v": (self.qkv, slice(queries + keys, queries + 2 * keys)),
            "o": (self.out, slice(0, self.out.out_features)),
        }

    def stacked_rows(self) -> dict[str, tuple[int, ...]]:
        keys = self.kv_heads * self.head_size
        return {"qkv.weight": (self.heads * self.head_size, keys, keys)}

    def extra_repr(self) -> str:
        return f"heads={self.heads}, kv_heads={self.kv_heads}, head_size={self.head_size}, dropout={self.dropout}"


def attend(q_BHTR: Tensor, k_BHSR: Tensor, v_BHSR: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Attention by the kernel that was measured fastest: by hand on a CPU with dropout, torch's elsewhere.

    Args:
        mask: ``[B, 1, T, S]``, true where a query may look; ``None``: causal.
        dropout: Rate on the weights.
    """
    if dropout == 0.0 or q_BHTR.device.type != "cpu":
        return F.scaled_dot_product_attention(
            q_BHTR, k_BHSR, v_BHSR, attn_mask=mask, dropout_p=dropout, is_causal=mask is None
        )
    size, (queries, keys) = q_BHTR.shape[-1], (q_BHTR.shape[2], k_BHSR.shape[2])
    seen = q_BHTR.new_ones(queries, keys, dtype=torch.bool).tril() if mask is None else mask
    bias = torch.zeros(seen.shape, dtype=q_BHTR.dtype, device=q_BHTR.device).masked_fill(~seen, float("-inf"))
    weights = ((q_BHTR * size**-0.5) @ k_BHSR.transpose(-1, -2) + bias).softmax(dim=-1)
    return F.dropout(weights, dropout) @ v_BHSR


def _mask(queries_BT: Tensor, keys_BS: Tensor) -> Tensor:
    """``[B, 1, T, S]``: keys at or before the query. ``PAD`` is past every real position, so no real query sees it."""
    return (keys_BS[:, None, :] <= queries_BT[:, :, None])[:, None]
