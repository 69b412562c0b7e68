"""How tokens look at each other. Letters: B sequences, T tokens, D width, H heads, G key heads, S keys, R head size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.components.position import Position
from loopkit.errors import UserError
from loopkit.loop import Dropout, Step
from loopkit.registry import AtMost, Divides, Factory, Fraction, register


class Attention(nn.Module):
    """Mixes tokens. Wiring: ``width``, ``position``, ``layer``, ``max_loops``, ``vocabulary``.

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


@register(
    "attention",
    "causal",
    paper="arXiv:1706.03762",
    provides={"double_backward", "cache"},
    reads_tokens="value_embeddings",
)
class CausalAttention(Attention):
    """Softmax attention in which a token sees itself and what came before.

    softmax(q k^T / sqrt(R)) v,   with a value embedding v + 2 sigmoid(W x) * table[token]

    Args:
        heads: Number of query heads.
        kv_heads: Number of key and value heads, each shared by heads / kv_heads query heads. ``None``: ``heads``.
        head_size: Channels of one head. ``None``: width / heads.
        qk_norm: Norm of queries and keys over the channels of a head, before rotation. ``None``: there is none.
        qkv_bias: Whether queries, keys and values have a bias.
        qk_bias: Whether queries and keys alone have one, zero at the start, before norm and rotation (Huginn).
        out_bias: Whether the output projection has a bias.
        dropout: Rate on the attention weights, which are then formed in memory: T * S numbers for each head.
        out_dropout: Rate on the output.
        value_embeddings: Layers with a table of their own that adds a vector of the token itself to its values: all,
            those of even or odd number, or a list of numbers, counted from 0 through prelude, core and coda, where a
            layer of the core counts once and uses its table in every loop. ``None``: no layer.
        value_gate: Of the input's channels, how many decide for each key head by which factor, from 0 to 2, the vector
            is taken. ``None``: the factor is 1.
        value_std: Standard deviation of the first tables. ``None``: ``init`` draws them.

    Raises:
        ValueError: If heads does not divide width and head_size is not given, if both biases are asked for, or if the
            block around it does not say how many tokens there are and the layer has a table.

    Paper: The value embeddings are Parcae's (arXiv:2604.12946), whose code has them in every second layer, the last one
    among them, with 32 channels for the gate and tables from N(0, 1).
    """

    def __init__(
        self,
        width: int,
        position: Position,
        layer: int,
        vocabulary: int | None = None,
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
        value_embeddings: Literal["all", "even", "odd"] | list[NonNegativeInt] | None = None,
        value_gate: Annotated[PositiveInt, AtMost("width")] | None = None,
        value_std: PositiveFloat | None = None,
    ) -> None:
        super().__init__()
        if head_size is None and width % heads:
            raise UserError(f"attention: {heads} heads do not divide a width of {width}; set heads or head_size")
        self.layer = layer
        self.heads = heads
        self.kv_heads = heads if kv_heads is None else kv_heads
        self.head_size = width // heads if head_size is None else head_size
        self.dropout = Dropout(dropout, "attention weights", layer)
        self.out_dropout = Dropout(out_dropout, "attention", layer)
        if heads % self.kv_heads:
            raise UserError(f"attention: {self.kv_heads} kv_heads do not divide {heads} heads")
        if qkv_bias and qk_bias:
            raise UserError(
                "attention: qkv_bias already gives queries and keys a bias; set one of qkv_bias and qk_bias"
            )
        self.qkv = nn.Linear(width, (heads + 2 * self.kv_heads) * self.head_size, bias=qkv_bias)
        self.qk_bias = nn.Parameter(torch.zeros((heads + self.kv_heads) * self.head_size)) if qk_bias else None
        self.out = nn.Linear(heads * self.head_size, width, bias=out_bias)
        self.norm_q = None if qk_norm is None else qk_norm(width=self.head_size)
        self.norm_k = None if qk_norm is None else qk_norm(width=self.head_size)
        self.value_std = value_std
        self.value_table = self.value_gate = None
        if _has_table(layer, value_embeddings):
            if vocabulary is None:
                raise UserError("attention: value_embeddings need a block that hands on the size of the vocabulary")
            self.value_table = nn.Embedding(vocabulary, self.kv_heads * self.head_size)
            self.value_gate = None if value_gate is None else nn.Linear(value_gate, self.kv_heads, bias=False)
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
        if self.value_table is not None:
            v = v + self._of_tokens(self.value_table, x, step).to(v.dtype)
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
        drop = (lambda weights: self.dropout.drop_weights(weights, step)) if self.dropout.active else None
        mixed = attend(q, k, v, mask, drop)
        return self.out_dropout(self.out(mixed.transpose(1, 2).flatten(2)), step)

    def _of_tokens(self, table: nn.Embedding, x: Tensor, step: Step) -> Tensor:
        """What the tokens themselves add to their values, ``[B, G, T, R]``."""
        if step.tokens is None:
            raise UserError("attention: value_embeddings need the tokens; read a state within the pass that made it")
        added = table(step.tokens).unflatten(-1, (-1, self.head_size))
        if self.value_gate is not None:
            gate = 2 * self.value_gate(x[..., : self.value_gate.in_features]).sigmoid()
            added = gate[..., None] * added
        return added.transpose(1, 2)

    def reset_parameters(self) -> None:
        if self.qk_bias is not None:
            nn.init.zeros_(self.qk_bias)
        if self.value_table is not None and self.value_std is not None:
            nn.init.normal_(self.value_table.weight, std=self.value_std)

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
        return f"heads={self.heads}, kv_heads={self.kv_heads}, head_size={self.head_size}"


def _has_table(layer: int, which: str | list[int] | None) -> bool:
    """Whether a layer has a value embedding."""
    if isinstance(which, list):
        return layer in which
    return which == "all" or which == ("odd" if layer % 2 else "even")


def attend(
    q_BHTR: Tensor,
    k_BHSR: Tensor,
    v_BHSR: Tensor,
    mask: Tensor | None,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Attention by torch's kernels; by hand with dropout, whose mask no kernel takes.

    Args:
        mask: ``[B, 1, T, S]``, true where a query may look; ``None``: causal.
        drop: Dropout of the weights, ``[B, H, T, S]`` to the same; ``None``: there is none.
    """
    if drop is None:
        return F.scaled_dot_product_attention(q_BHTR, k_BHSR, v_BHSR, attn_mask=mask, is_causal=mask is None)
    size, (queries, keys) = q_BHTR.shape[-1], (q_BHTR.shape[2], k_BHSR.shape[2])
    seen = q_BHTR.new_ones(queries, keys, dtype=torch.bool).tril() if mask is None else mask
    bias = torch.zeros(seen.shape, dtype=q_BHTR.dtype, device=q_BHTR.device).masked_fill(~seen, float("-inf"))
    weights = ((q_BHTR * size**-0.5) @ k_BHSR.transpose(-1, -2) + bias).softmax(dim=-1)
    return drop(weights) @ v_BHSR


def _mask(queries_BT: Tensor, keys_BS: Tensor) -> Tensor:
    """``[B, 1, T, S]``: keys at or before the query. ``PAD`` is past every real position, so no real query sees it."""
    return (keys_BS[:, None, :] <= queries_BT[:, :, None])[:, None]
