"""The token table. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor, nn

from loopkit.components.position import Position
from loopkit.loop import Dropout, Noise


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
        self.dropout = Dropout(dropout, "embedding")

    def forward(self, tokens: Tensor, positions: Tensor, position: Position, noise: Noise) -> Tensor:
        """``[B, T]`` to ``[B, T, D]``; the noise is that of these tokens."""
        x = self.tokens(tokens)
        if self.scale != 1.0:
            x = x * self.scale
        x = position.embed(x, positions)
        return self.dropout.drop(x, noise.tokens()) if self.dropout.active else x

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}"
