"""How tokens are mixed. Dims: B sequences, T tokens, D width, H heads, G key heads, S keys, R head size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.components.position import Position
from loopkit.errors import UserError
from loopkit.loop import Dropout, Step
from loopkit.registry import AtMost, Divides, Factory, Fraction, register


class Attention(nn.Module):
    """Mixes the tokens of a sequence. Wiring: ``width``, ``position``, ``layer``, ``max_loops``, ``vocabulary``.

    A query attends to keys at its own or an earlier position, never to a key whose position is ``PAD``. The output
    projection is called ``out``, because ``init: scaled`` selects it by that name. An attention that implements
    ``step.cache`` registers ``provides={"cache"}``; one that is twice differentiable, ``provides={"double_backward"}``.
    """

    cached_numbers: int = 0
    """Numbers per token that one slot of a cache holds: keys and values."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """Mix tokens.

        Args:
            x: ``[B, T, D]``, already normalised if the placement normalises inputs.
            step: Its ``positions``, ``in_order`` and ``cache`` determine which keys a query attends to.

        Returns:
            ``[B, T, D]``, which the placement adds to the stream.
        """
        raise NotImplementedError

    def roles(self) -> dict[str, tuple[nn.Linear, slice]]:
        """The matrix and output rows of queries ``q``, keys ``k``, values ``v`` and output ``o``.

        Adapters select matrices by these names; a variant without one of the matrices omits its name.
        """
        return {}

    def stacked_rows(self) -> dict[str, tuple[int, ...]]:
        """Parameters of this module that stack several matrices, and the number of rows of each.

        An optimizer for matrices updates each of them separately. Any module may define this method.
        """
        return {}


class _ValueEmbeddings(Attention):
    """An attention that may add a gated vector of the token itself to its values.

    v + 2 sigmoid(W x) * table[token]
    """

    def __init__(self) -> None:
        super().__init__()
        self.value_table: nn.Embedding | None = None
        self.value_gate: nn.Linear | None = None
        self.value_std: float | None = None

    def add_value_table(
        self, vocabulary: int | None, kv_heads: int, head_size: int, gate: int | None, std: float | None
    ) -> None:
        """Create the table, and a gate that reads the first ``gate`` channels of the input."""
        if vocabulary is None:
            raise UserError("attention: value_embeddings require a block that passes the size of the vocabulary")
        self.value_std = std
        self.value_table = nn.Embedding(vocabulary, kv_heads * head_size)
        self.value_gate = None if gate is None else nn.Linear(gate, kv_heads, bias=False)

    def embed_values(self, v: Tensor, x: Tensor, step: Step) -> Tensor:
        """Add the vectors of the tokens to the values, ``[B, G, T, R]``; unchanged in a layer without a table."""
        if self.value_table is None:
            return v
        if step.tokens is None:
            raise UserError("attention: value_embeddings require step.tokens, which Trajectory.context sets")
        vectors = rearrange(self.value_table(step.tokens), "b t (g r) -> b t g r", r=v.shape[-1])
        if self.value_gate is not None:
            gate_BTG = 2 * self.value_gate(x[..., : self.value_gate.in_features]).sigmoid()
            vectors = gate_BTG[..., None] * vectors
        return v + rearrange(vectors, "b t g r -> b g t r").to(v.dtype)

    def reset_parameters(self) -> None:
        if self.value_table is not None and self.value_std is not None:
            nn.init.normal_(self.value_table.weight, std=self.value_std)


@register(
    "attention",
    "causal",
    paper="arXiv:1706.03762",
    provides={"double_backward", "cache"},
    reads_tokens="value_embeddings",
)
class CausalAttention(_ValueEmbeddings):
    """Softmax attention over the token itself and all earlier tokens.

    softmax(q k^T / sqrt(R)) v,   with a value embedding v + 2 sigmoid(W x) * table[token]

    Args:
        heads: Number of query heads.
        kv_heads: Number of key and value heads, each shared by heads / kv_heads query heads. ``None``: ``heads``.
        head_size: Channels of one head. ``None``: width / heads.
        qk_norm: Norm of queries and keys over the channels of a head, before rotation. ``None``: no norm.
        qkv_bias: Whether queries, keys and values have a bias.
        qk_bias: Whether only queries and keys have a bias, initially zero, before norm and rotation (Huginn).
        out_bias: Whether the output projection has a bias.
        dropout: Rate on the attention weights, which then take memory: T * S numbers for each head.
        out_dropout: Rate on the output.
        value_embeddings: Layers with a table that adds a vector of the token itself to its values: all, those with an
            even or odd number, or a list of numbers. Numbers count from 0 through prelude, core and coda; a layer of
            the core counts once and uses its table in every loop. ``None``: no layer.
        value_gate: Number of input channels from which each key head computes the factor on the vector, from 0 to 2.
            ``None``: the factor is 1.
        value_std: Standard deviation of the initial tables. ``None``: ``init`` draws them.

    Raises:
        UserError: If heads does not divide width and head_size is not set, if both biases are set, or if the layer has
            a table and the block does not pass ``vocabulary``.

    Paper: The value embeddings are Parcae's (arXiv:2604.12946), whose code has them in every second layer including the
    last, with 32 channels for the gate and tables from N(0, 1).
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
        if _has_table(layer, value_embeddings):
            self.add_value_table(vocabulary, self.kv_heads, self.head_size, value_gate, value_std)
        self.cached_numbers = 2 * self.kv_heads * self.head_size
        self._position = (position,)  # in a tuple, because its parameters belong to the model and not to every layer

    def forward(self, x: Tensor, step: Step) -> Tensor:
        q, k, v = self._project(x)
        if self.norm_q is not None and self.norm_k is not None:
            q, k = self.norm_q(q).to(v.dtype), self.norm_k(k).to(v.dtype)
        v = self.embed_values(v, x, step)
        q, k = self._position[0].rotate(q, k, step.positions)
        mask = None
        if step.cache is not None:
            slot = (step.k, self.layer)
            k, v, key_positions = step.cache.extend(slot, k, v, step.positions, step.rows)
            mask = _mask(step.positions, key_positions)
        elif not step.in_order:
            mask = _mask(step.positions, step.positions)
        if self.kv_heads != self.heads:
            k, v = (heads.repeat_interleave(self.heads // self.kv_heads, dim=1) for heads in (k, v))
        drop = (lambda weights: self.dropout.drop_weights(weights, step)) if self.dropout.active else None
        mixed = attend(q, k, v, mask, drop)
        return self.out_dropout(self.out(rearrange(mixed, "b h t r -> b t (h r)")), step)

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries ``[B, H, T, R]``, keys and values ``[B, G, T, R]``."""
        qkv = self.qkv(x)
        if self.qk_bias is not None:
            qkv = qkv + F.pad(self.qk_bias, (0, self.kv_heads * self.head_size)).to(qkv.dtype)
        heads = rearrange(qkv, "b t (h r) -> b h t r", r=self.head_size)
        return heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)

    def reset_parameters(self) -> None:
        if self.qk_bias is not None:
            nn.init.zeros_(self.qk_bias)
        super().reset_parameters()

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
    """Check whether a layer has a value embedding."""
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
    """Softmax attention: torch's kernel, or explicit weights with dropout, because no kernel accepts our dropout mask.

    Args:
        q_BHTR, k_BHSR, v_BHSR: Queries, keys and values, with equal numbers of heads.
        mask: ``[B, 1, T, S]``, true where a query attends to a key; ``None``: causal.
        drop: Dropout of the weights, ``[B, H, T, S]`` to the same shape; ``None``: no dropout.

    Returns:
        ``[B, H, T, R]``.
    """
    if drop is None:
        return F.scaled_dot_product_attention(q_BHTR, k_BHSR, v_BHSR, attn_mask=mask, is_causal=mask is None)
    if mask is None:
        mask = q_BHTR.new_ones(q_BHTR.shape[2], k_BHSR.shape[2], dtype=torch.bool).tril()
    bias = torch.zeros(mask.shape, dtype=q_BHTR.dtype, device=q_BHTR.device).masked_fill(~mask, float("-inf"))
    weights = ((q_BHTR * q_BHTR.shape[-1] ** -0.5) @ k_BHSR.transpose(-1, -2) + bias).softmax(dim=-1)
    return drop(weights) @ v_BHSR


def _mask(queries_BT: Tensor, keys_BS: Tensor) -> Tensor:
    """``[B, 1, T, S]``: keys at or before the query. ``PAD`` exceeds every real position, so it is always masked."""
    return (keys_BS[:, None, :] <= queries_BT[:, :, None])[:, None]
