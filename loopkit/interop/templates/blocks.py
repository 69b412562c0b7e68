"""Layers and stages of a looped model. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from loopkit.interop.templates.layers import ATTENTIONS, MLPS, NORMS, NoPosition, Options, Pass, build

Sublayer = Callable[[Tensor], Tensor]


class Pre(nn.Module):
    """x + f(N(x)).

    Args:
        norm: Options of the norms.
        width: Channels of the stream.
        max_loops: Maximum number of loops in training; 0 outside of the core.
        num_layers: Blocks of the core; 0 outside of it.
    """

    def __init__(self, norm: Options, width: int, max_loops: int, num_layers: int) -> None:
        super().__init__()
        self.norm = build(NORMS, norm, width)

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return x + f(self.norm(x)).to(x.dtype)


class Post(Pre):
    """N(x + f(x))."""

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return self.norm(x + f(x).to(x.dtype)).to(x.dtype)


class PreSandwich(nn.Module):
    """x + N2(f(N1(x)))."""

    def __init__(self, norm: Options, width: int, max_loops: int, num_layers: int) -> None:
        super().__init__()
        self.norm_in = build(NORMS, norm, width)
        self.norm_out = build(NORMS, norm, width)

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return x + self.norm_out(f(self.norm_in(x))).to(x.dtype)


class PostSandwich(PreSandwich):
    """N2(x + f(N1(x)))."""

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return self.norm_out(x + f(self.norm_in(x)).to(x.dtype)).to(x.dtype)


class DeepNorm(Pre):
    """N(alpha * x + f(x)), alpha = (2 * num_layers * max_loops)^(1/4)."""

    def __init__(self, norm: Options, width: int, max_loops: int, num_layers: int, *, alpha: float | None) -> None:
        super().__init__(norm, width, max_loops, num_layers)
        self.alpha = max(2 * num_layers * max_loops, 1) ** 0.25 if alpha is None else alpha

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return self.norm(self.alpha * x + f(x).to(x.dtype)).to(x.dtype)


class PreScaled(Pre):
    """x + eps * f(N(x)), eps = gain * max_loops^a * num_layers^b in the core, 1 outside of it."""

    def __init__(
        self, norm: Options, width: int, max_loops: int, num_layers: int, *, gain: float, loops: str, layers: str
    ) -> None:
        super().__init__(norm, width, max_loops, num_layers)
        power = {"inverse": -1.0, "inverse_sqrt": -0.5, "none": 0.0}
        self.scale = gain * max_loops ** power[loops] * num_layers ** power[layers] if max_loops else 1.0

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return x + self.scale * f(self.norm(x)).to(x.dtype)


PLACEMENTS: dict[str, Callable[..., nn.Module]] = {
    "pre": Pre,
    "post": Post,
    "pre_sandwich": PreSandwich,
    "post_sandwich": PostSandwich,
    "deepnorm": DeepNorm,
    "pre_scaled": PreScaled,
}


class Transformer(nn.Module):
    """x = placement(x, attention);  x = placement(x, mlp).

    Args:
        width: Channels of the stream.
        position: The position encoding, shared by all layers.
        layer: Number of the layer in the model.
        vocabulary: Number of tokens.
        depth: ``max_loops`` and ``num_layers`` for the placements.
    """

    def __init__(
        self,
        width: int,
        position: NoPosition,
        layer: int,
        vocabulary: int,
        depth: Mapping[str, int],
        *,
        attention: Options,
        mlp: Options,
        norm: Options,
        placement: Options,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = build(ATTENTIONS, attention, width, position, layer, vocabulary)
        self.mlp = build(MLPS, mlp, width)
        self.around_attention = build(PLACEMENTS, placement, norm, width, **depth)
        self.around_mlp = build(PLACEMENTS, placement, norm, width, **depth)
        self.dropout = dropout

    def forward(self, x: Tensor, run: Pass, slot: int) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, run, slot))
        return self.around_mlp(x, lambda y: F.dropout(self.mlp(y), self.dropout, self.training))


BLOCKS: dict[str, Callable[..., nn.Module]] = {"transformer": Transformer}


class Stack(nn.Module):
    """The core: blocks one after the other."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, run: Pass, slot: int) -> Tensor:
        """``[B, T, D]`` to the same shape; block i uses the keys of ``slot + i``."""
        for i, block in enumerate(self.blocks):
            x = block(x, run, slot + i)
        return x


class Prelude(Stack):
    """Blocks, then a square matrix, then a norm; each of them optional.

    Args:
        blocks: In order; may be empty.
        width: Channels of the stream.
        norm: Options of the norm.
        project: Whether there is a matrix.
    """

    def __init__(self, blocks: Sequence[nn.Module], width: int, norm: Options | None, project: Any) -> None:
        super().__init__(blocks)
        self.norm = None if norm is None else build(NORMS, norm, width)
        self.project = None if project is None else nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, run: Pass, slot: int) -> Tensor:
        x = super().forward(x, run, slot)
        if self.project is not None:
            x = self.project(x).to(x.dtype)
        return x if self.norm is None else self.norm(x).to(x.dtype)


class Coda(Prelude):
    """A norm, then a square matrix, then blocks."""

    def forward(self, x: Tensor, run: Pass, slot: int) -> Tensor:
        if self.norm is not None:
            x = self.norm(x).to(x.dtype)
        if self.project is not None:
            x = self.project(x).to(x.dtype)
        return Stack.forward(self, x, run, slot)


CORES: dict[str, Callable[..., nn.Module]] = {"stack": Stack}
