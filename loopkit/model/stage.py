"""Prelude and coda: unshared blocks, and a norm on the side that faces the loop.

Letters: B sequences, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.norm import Norm
from loopkit.loop import Step


class Prelude(nn.Module):
    """Blocks, then the norm.

    Args:
        blocks: In order; may be none.
        norm: Of the result, or ``None``.
    """

    def __init__(self, blocks: Sequence[Block], norm: Norm | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``[B, T, D]`` to the same shape."""
        for block in self.blocks:
            x = block(x, step)
        return x if self.norm is None else self.norm(x).to(x.dtype)


class Coda(nn.Module):
    """The norm, then blocks.

    Args:
        blocks: In order; may be none.
        norm: Of what comes in, or ``None``.
    """

    def __init__(self, blocks: Sequence[Block], norm: Norm | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def forward(self, h: Tensor, step: Step) -> Tensor:
        """``[B, T, D]`` to the same shape."""
        if self.norm is not None:
            h = self.norm(h).to(h.dtype)
        for block in self.blocks:
            h = block(h, step)
        return h
