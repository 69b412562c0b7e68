"""Blocks of a looped model. Dims: B sequences, T tokens, D width, H heads, G key heads, S keys, R head size.

Every class takes the options of the component of the same name in loopkit's recipes. Options that matter only before
or in loopkit's own training are accepted and unused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Options = Mapping[str, Any]
Attend = Callable[["CausalAttention", int, Tensor, Tensor, Tensor], Tensor]
"""``attend(attention, slot, q, k, v)``: q ``[B, H, T, R]``, k and v ``[B, G, T, R]``, to ``[B, T, H, R]``."""


@dataclass(frozen=True)
class Pass:
    """What all blocks of one forward pass share.

    Args:
        positions: ``[B, T]`` int64, 0 at the first real token of a sequence.
        attend: Attention with the keys of earlier tokens.
        tokens: ``[B, T]`` int64; None if the caller gave embeddings.
    """

    positions: Tensor
    attend: Attend
    tokens: Tensor | None = None


def build(table: Mapping[str, Callable[..., Any]], spec: Options, *wiring: Any, **named: Any) -> Any:
    """Build the component that ``spec["type"]`` names, with the other entries of ``spec`` as options."""
    options = {name: value for name, value in spec.items() if name != "type"}
    return table[spec["type"]](*wiring, **named, **options)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) * gain."""

    def __init__(self, width: int, *, gain: bool, eps: float) -> None:
        super().__init__()
        self.width, self.eps = width, eps
        self.weight = nn.Parameter(torch.ones(width)) if gain else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.weight is None else x.to(self.weight.dtype)
        return F.rms_norm(x, (self.width,), self.weight, self.eps)


class LayerNorm(nn.Module):
    """(x - mean(x)) / sqrt(var(x) + eps) * gain + bias."""

    def __init__(self, width: int, *, gain: bool, bias: bool, eps: float) -> None:
        super().__init__()
        self.width, self.eps = width, eps
        self.weight = nn.Parameter(torch.ones(width)) if gain else None
        self.bias = nn.Parameter(torch.zeros(width)) if gain and bias else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.weight is None else x.to(self.weight.dtype)
        return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)


NORMS: dict[str, Callable[..., nn.Module]] = {"rmsnorm": RMSNorm, "layernorm": LayerNorm}


class NoPosition(nn.Module):
    """No mark."""

    def __init__(self, width: int, max_length: int) -> None:
        super().__init__()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


class Learned(NoPosition):
    """A learned vector for each position, added once to the embedding."""

    def __init__(self, width: int, max_length: int) -> None:
        super().__init__(width, max_length)
        self.table = nn.Embedding(max_length, width)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        if positions.device.type == "cpu" and int(positions.max()) >= self.table.num_embeddings:
            raise ValueError(
                f"position {int(positions.max())} is past the {self.table.num_embeddings} learned positions; "
                "use shorter sequences"
            )
        return x + self.table(positions).to(x.dtype)


class Rope(NoPosition):
    """Rotate pairs of channels of queries and keys by an angle that grows with the position."""

    def __init__(self, width: int, max_length: int, *, base: float, pairing: str) -> None:
        super().__init__(width, max_length)
        self.base, self.pairing = base, pairing

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        exponent = torch.arange(0, q.shape[-1], 2, device=q.device, dtype=wide) / q.shape[-1]
        angle = positions.to(wide)[:, None, :, None] * self.base**-exponent
        cos, sin = angle.cos(), angle.sin()
        return self._turn(q, cos, sin), self._turn(k, cos, sin)

    def _turn(self, x_BHTR: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x_BHTR.to(cos.dtype)
        if self.pairing == "halves":
            a, b = x.chunk(2, dim=-1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        else:
            a, b = x[..., 0::2], x[..., 1::2]
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
        return turned.to(x_BHTR.dtype)


POSITIONS: dict[str, Callable[..., NoPosition]] = {"none": NoPosition, "learned": Learned, "rope": Rope}


class CausalAttention(nn.Module):
    """Projections, norms and rotation around an attention kernel; the kernel and the cache belong to the caller.

    Args:
        width: Channels of the stream.
        position: The position encoding, shared by all layers.
        layer: Number of the layer in the model; a layer of the core counts once.
        vocabulary: Number of tokens.
    """

    def __init__(
        self,
        width: int,
        position: NoPosition,
        layer: int,
        vocabulary: int,
        *,
        heads: int,
        kv_heads: int | None,
        head_size: int | None,
        qk_norm: Options | None,
        qkv_bias: bool,
        qk_bias: bool,
        out_bias: bool,
        dropout: float,
        out_dropout: float,
        value_embeddings: str | list[int] | None,
        value_gate: int | None,
        value_std: float | None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.head_size = size = head_size or width // heads
        self.dropout, self.out_dropout = dropout, out_dropout
        self.qkv = nn.Linear(width, (heads + 2 * self.kv_heads) * size, bias=qkv_bias)
        self.qk_bias = nn.Parameter(torch.zeros((heads + self.kv_heads) * size)) if qk_bias else None
        self.out = nn.Linear(heads * size, width, bias=out_bias)
        self.norm_q = None if qk_norm is None else build(NORMS, qk_norm, size)
        self.norm_k = None if qk_norm is None else build(NORMS, qk_norm, size)
        every = value_embeddings == "all" or value_embeddings == ("odd" if layer % 2 else "even")
        if every or (isinstance(value_embeddings, list) and layer in value_embeddings):
            self.value_table: nn.Embedding | None = nn.Embedding(vocabulary, self.kv_heads * size)
            self.value_gate = None if value_gate is None else nn.Linear(value_gate, self.kv_heads, bias=False)
        else:
            self.value_table = self.value_gate = None
        self._position = (position,)  # in a tuple, because its parameters belong to the model

    def forward(self, x: Tensor, run: Pass, slot: int) -> Tensor:
        qkv = self.qkv(x)
        if self.qk_bias is not None:
            qkv = qkv + F.pad(self.qk_bias, (0, self.kv_heads * self.head_size)).to(qkv.dtype)
        heads = qkv.unflatten(-1, (-1, self.head_size)).transpose(1, 2)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if self.norm_q is not None and self.norm_k is not None:
            q, k = self.norm_q(q).to(v.dtype), self.norm_k(k).to(v.dtype)
        if self.value_table is not None:
            v = v + self._token_values(x, run).to(v.dtype)
        q, k = self._position[0].rotate(q, k, run.positions)
        mixed = run.attend(self, slot, q, k, v)
        return F.dropout(self.out(mixed.flatten(2)), self.out_dropout, self.training)

    def _token_values(self, x: Tensor, run: Pass) -> Tensor:
        """Vectors of the tokens, ``[B, G, T, R]``, each key head weighted by 2 sigmoid(W x)."""
        if run.tokens is None:
            raise ValueError("value embeddings need input_ids; inputs_embeds alone is not supported")
        vectors = self.value_table(run.tokens).unflatten(-1, (self.kv_heads, -1))  # type: ignore[misc]
        if self.value_gate is not None:
            vectors = 2 * self.value_gate(x[..., : self.value_gate.in_features]).sigmoid()[..., None] * vectors
        return vectors.transpose(1, 2)


class SwiGLU(nn.Module):
    """W_out (silu(W_gate x) * W_up x)."""

    def __init__(self, width: int, *, ratio: float, hidden: int | None, bias: bool) -> None:
        super().__init__()
        size = round(ratio * width) if hidden is None else hidden
        self.gate = nn.Linear(width, size, bias=bias)
        self.up = nn.Linear(width, size, bias=bias)
        self.out = nn.Linear(size, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.silu(self.gate(x)) * self.up(x))


class Gelu(nn.Module):
    """W_out gelu(W_up x)."""

    def __init__(self, width: int, *, ratio: float, hidden: int | None, bias: bool, exact: bool = True) -> None:
        super().__init__()
        size = round(ratio * width) if hidden is None else hidden
        self.up = nn.Linear(width, size, bias=bias)
        self.out = nn.Linear(size, width, bias=bias)
        self.approximate = "none" if exact else "tanh"

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.gelu(self.up(x), approximate=self.approximate))


class Relu2(nn.Module):
    """W_out max(W_up x, 0)²."""

    def __init__(self, width: int, *, ratio: float, hidden: int | None, bias: bool) -> None:
        super().__init__()
        size = round(ratio * width) if hidden is None else hidden
        self.up = nn.Linear(width, size, bias=bias)
        self.out = nn.Linear(size, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.up(x)).square())


MLPS: dict[str, Callable[..., nn.Module]] = {"swiglu": SwiGLU, "gelu": Gelu, "relu2": Relu2}
ATTENTIONS: dict[str, Callable[..., nn.Module]] = {"causal": CausalAttention}
