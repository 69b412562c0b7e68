"""The token table. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from loopkit.components.position import Position


class Embedding(nn.Module):
    """Token vectors times a scale, plus what the position adds, then dropout.

    x = dropout(position(scale * table[tokens]))

    Args:
        vocabulary: Number of tokens.
        width: Channels of the stream.
        scale: Factor on the table; ``sqrt_width`` is the square root of the width.
        dropout: Rate on the sum.
    """

    def __init__(self, vocabulary: int, width: int, *, scale: float | Literal["sqrt_width"], dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.scale = math.sqrt(width) if scale == "sqrt_width" else scale
        self.dropout = dropout

    def forward(self, tokens: Tensor, positions: Tensor, position: Position) -> Tensor:
        """``[B, T]`` to ``[B, T, D]``."""
        x = self.tokens(tokens)
        if self.scale != 1.0:
            x = x * self.scale
        return F.dropout(position.embed(x, positions), self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}, dropout={self.dropout}"
