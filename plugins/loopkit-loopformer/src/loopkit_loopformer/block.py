"""A block that knows when it runs and how far it goes. Letters: B sequences, T tokens, D width, F frequencies."""

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
from loopkit.loop import Dropout, Step
from loopkit.registry import Factory, Fraction, register, use

TICKS = 1000.0
"""What a time from 0 to 1 is multiplied by, so that the frequencies of diffusion models resolve it."""
SLOWEST = 10_000.0
"""Ratio of the fastest frequency to the slowest."""


class Clock(nn.Module):
    """A vector for a number between 0 and 1.

    W_2 silu(W_1 [cos(1000 t f), sin(1000 t f)])

    Args:
        width: Channels of the vector, D.
        size: Sines and cosines together, F.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.first = nn.Linear(size, width)
        self.second = nn.Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        """A scalar to ``[D]``."""
        half = self.size // 2
        frequencies = torch.exp(-math.log(SLOWEST) / half * torch.arange(half, device=t.device, dtype=t.dtype))
        angles = TICKS * t * frequencies
        return self.second(F.silu(self.first(torch.cat([angles.cos(), angles.sin()]))))


class Condition(nn.Module):
    """What a block is told: a vector for the time at which the loop begins, plus one for the time it takes.

    Blocks may share one by ``model.tie``.

    Args:
        width: Channels of the vector, D.
        size: Sines and cosines together, for each of the two.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.time = Clock(width, size)
        self.step = Clock(width, size)

    # time is a float: a compiled block would be compiled anew for every value of it
    @torch.compiler.disable
    def forward(self, step: Step) -> Tensor:
        """``[D]``."""
        like = self.time.first.weight
        t, dt = (torch.full((), value, dtype=like.dtype, device=step.c.device) for value in (step.t, step.dt))
        return F.silu(self.time(t) + self.step(dt))


class Modulation(nn.Module):
    """The factors of a block, all zero before training, so that the block begins as the identity.

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
        """``[D]`` to four factors, each ``[D]``: scale and gate of the attention, scale and gate of the MLP."""
        return self.factors(condition).chunk(4)


@register("block", "loopformer_block", paper="arXiv:2602.11451", uses_total=True)
class LoopFormerBlock(Block):
    """A pre-norm block whose sublayers are scaled and gated by the time of the loop and by the time that it takes.

    a, g, b, h = W silu(clock(t) + clock(dt)),   W = 0 before training
    x = x + g * attention(N(x) (1 + a));   x = x + h * mlp(N(x) (1 + b))

    Loop k of a run begins at ``step.t`` and takes ``step.dt``, so what it does depends on how many loops the run has: a
    pass is needed for each depth. In prelude and coda, where there is no time, it is a plain pre-norm block.

    Args:
        attention: How tokens look at each other.
        mlp: The channel mixer.
        norm: The two norms. The paper's have no gain, because the modulation is one.
        clock: Sines and cosines that stand for a time.
        dropout: Rate on the MLP's output. Attention has rates of its own.

    Paper: Its clocks are shared by all blocks; here each block has its own unless ``model.tie`` says otherwise.
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
            raise ValueError(f"block 'loopformer_block': clock counts sines and cosines, so it is even, not {clock}")
        place = {"layer": layer, "max_loops": max_loops, "vocabulary": vocabulary}
        self.attention = attention(width=width, position=position, **place)
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
