"""A block conditioned on the time and step size of a loop. Dims: B sequences, T tokens, D width, F features."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.attention import Attention
from loopkit.components.block import Block
from loopkit.components.mlp import Mlp
from loopkit.components.norm import Norm
from loopkit.components.position import Position
from loopkit.errors import UserError
from loopkit.loop import Dropout, Step
from loopkit.registry import Factory, Fraction, register, use

TIME_SCALE = 1000.0
"""Factor on a time in [0, 1], which brings it into the range of the frequencies of diffusion models."""
MAX_PERIOD = 10_000.0
"""Ratio of the highest frequency to the lowest."""


class TimeEmbedding(nn.Module):
    """Embed a number in [0, 1].

    W_2 silu(W_1 [cos(1000 t f), sin(1000 t f)])

    Args:
        width: Channels of the vector, D.
        size: Number of sines and cosines, F; even.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.first = nn.Linear(size, width)
        self.second = nn.Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        """Map a scalar to ``[D]``."""
        half = self.size // 2
        frequencies = torch.exp(-math.log(MAX_PERIOD) / half * torch.arange(half, device=t.device, dtype=t.dtype))
        angles = TIME_SCALE * t * frequencies
        return self.second(F.silu(self.first(torch.cat([angles.cos(), angles.sin()]))))


class Condition(nn.Module):
    """The condition of a block: the embedding of the start time of a loop plus that of its step size.

    Blocks can share it with ``model.tie``.

    Args:
        width: Channels of the vector, D.
        size: Number of sines and cosines of each embedding; even.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.time = TimeEmbedding(width, size)
        self.step = TimeEmbedding(width, size)

    # the times are floats, and a compiled block would recompile for each value
    @torch.compiler.disable
    def forward(self, step: Step) -> Tensor:
        """``[D]``."""
        like = self.time.first.weight
        t, dt = (torch.full((), value, dtype=like.dtype, device=step.c.device) for value in (step.t, step.dt))
        return F.silu(self.time(t) + self.step(dt))


class Modulation(nn.Module):
    """The scales and gates of a block, initialised to zero so that the block starts as the identity.

    Args:
        width: Channels of each factor, D.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factors = nn.Linear(width, 4 * width)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.factors.weight)
        nn.init.zeros_(self.factors.bias)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        """Map ``[D]`` to four factors, each ``[D]``: scale and gate of the attention, scale and gate of the MLP."""
        return self.factors(condition).chunk(4)


@register("block", "loopformer_block", paper="arXiv:2602.11451", uses_total=True)
class LoopFormerBlock(Block):
    """A pre-norm block whose sublayers are scaled and gated by the time and step size of the loop.

    a, g, b, h = W silu(embed(t) + embed(dt)),   W = 0 before training
    x = x + g * attention(N(x) (1 + a));   x = x + h * mlp(N(x) (1 + b))

    Loop k starts at time ``step.t`` and has the step size ``step.dt``, so its result depends on the number of loops and
    evaluation runs one pass per depth. In prelude and coda it is a plain pre-norm block.

    Args:
        attention: The attention.
        mlp: The channel mixer.
        norm: The two norms. Those of the paper have no gain, because the modulation replaces it.
        clock: Number of sines and cosines in the embedding of a time; even.
        dropout: Rate on the output of the MLP. The attention has its own rates.

    Paper: All blocks share the time embeddings; here each block has its own unless ``model.tie`` ties them.
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
        clock: PositiveInt = 256,
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        if clock % 2:
            raise UserError(f"block 'loopformer_block': clock must be even, not {clock}: it counts sines and cosines")
        depth = {"layer": layer, "max_loops": max_loops, "vocabulary": vocabulary}
        self.attention = attention(width=width, position=position, **depth)
        self.mlp = mlp(width=width, layer=layer, max_loops=max_loops)
        self.norm_attention = norm(width=width)
        self.norm_mlp = norm(width=width)
        self.condition = Condition(width, clock) if max_loops else None
        self.modulation = Modulation(width) if max_loops else None
        self.dropout = Dropout(dropout, "mlp", layer)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        if self.condition is None or self.modulation is None:
            x = x + self.attention(self.norm_attention(x), step).to(x.dtype)
            return x + self._mlp(self.norm_mlp(x), step).to(x.dtype)
        a, g, b, h = (factor.to(x.dtype) for factor in self.modulation(self.condition(step)))
        x = x + g * self.attention(self.norm_attention(x) * (1 + a), step).to(x.dtype)
        return x + h * self._mlp(self.norm_mlp(x) * (1 + b), step).to(x.dtype)

    def _mlp(self, x: Tensor, step: Step) -> Tensor:
        return self.dropout(self.mlp(x, step), step)
