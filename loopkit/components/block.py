"""One layer of prelude, core or coda. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from loopkit.components.attention import Attention
from loopkit.components.mlp import Mlp
from loopkit.components.norm import Norm
from loopkit.components.placement import Placement
from loopkit.components.position import Position
from loopkit.loop import Dropout, Step
from loopkit.registry import Factory, Fraction, register, use


class Block(nn.Module):
    """One layer.

    Wiring: ``width``, ``position`` (how tokens know their order; shared by all blocks), ``layer`` (its number in the
    whole model, from 0, which keys its cache), ``max_loops`` (most loops in training) and ``num_layers`` (blocks of the
    core), both 0 in prelude and coda, which run once, and ``vocabulary`` (number of tokens). A block hands its
    sublayers and placements the part of this that their kinds list.

    ``step.k`` is 0 in the prelude, 1 to ``step.loops.total`` in the core, and ``at + 1`` in a coda that reads as if
    loop ``at`` were the last. The result keeps the dtype of ``x``.
    """

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """The stream, ``[B, T, D]``, to the same shape and dtype."""
        raise NotImplementedError


@register("block", "transformer", paper="arXiv:1706.03762", reads_tokens=None)
class Transformer(Block):
    """Attention, then an MLP, each joined to the stream by a placement.

    x = placement(x, attention);  x = placement(x, mlp)

    Args:
        attention: Mixes information between tokens.
        mlp: The channel mixer.
        norm: The norms of both placements.
        placement: Where the norms sit.
        dropout: Rate on the MLP's output. Attention has rates of its own, on its weights and on its output.
    """

    def __init__(
        self,
        width: int,
        position: Position,
        layer: int,
        max_loops: int,
        vocabulary: int | None = None,
        num_layers: int = 0,
        *,
        attention: Factory[Attention] = use("causal"),
        mlp: Factory[Mlp] = use("swiglu"),
        norm: Factory[Norm] = use("rmsnorm"),
        placement: Factory[Placement] = use("pre"),
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()

        def make_norm() -> Norm:
            return norm(width=width)

        place = {"layer": layer, "max_loops": max_loops, "vocabulary": vocabulary}
        self.attention = attention(width=width, position=position, **place)
        self.mlp = mlp(width=width, layer=layer, max_loops=max_loops)
        depth = {"layer": layer, "max_loops": max_loops, "num_layers": num_layers}
        self.around_attention = placement(norm=make_norm, **depth)
        self.around_mlp = placement(norm=make_norm, **depth)
        self.dropout = Dropout(dropout, "mlp", layer)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, step), step)
        return self.around_mlp(x, lambda y: self.dropout(self.mlp(y, step), step), step)
