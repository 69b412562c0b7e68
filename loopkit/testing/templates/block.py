"""A block. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from torch import Tensor

from loopkit.components.attention import Attention
from loopkit.components.block import Block
from loopkit.components.mlp import Mlp
from loopkit.components.norm import Norm
from loopkit.components.position import Position
from loopkit.loop import Step
from loopkit.registry import Factory, register, use


@register("block", "template")
class Template(Block):
    """Attention and MLP in parallel, both applied to the same normalised stream.

    y = x + attention(N(x)) + mlp(N(x))

    Args:
        attention: The attention.
        mlp: The MLP.
        norm: The norm of their common input.
    """

    def __init__(
        self,
        width: int,
        position: Position,
        layer: int,
        max_loops: int,
        vocabulary: int | None = None,
        *,
        attention: Factory[Attention] = use("causal"),
        mlp: Factory[Mlp] = use("swiglu"),
        norm: Factory[Norm] = use("rmsnorm"),
    ) -> None:
        super().__init__()
        depth = {"layer": layer, "max_loops": max_loops, "vocabulary": vocabulary}
        self.attention = attention(width=width, position=position, **depth)
        self.mlp = mlp(width=width, layer=layer, max_loops=max_loops)
        self.norm = norm(width=width)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        y = self.norm(x)
        # the stream keeps its precision under autocast
        return x + (self.attention(y, step) + self.mlp(y, step)).to(x.dtype)
