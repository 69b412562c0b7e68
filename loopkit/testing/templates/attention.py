"""Attention. Dims: B sequences, T tokens, D width, H heads, S keys, R head size."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.attention import Attention
from loopkit.components.position import Position
from loopkit.loop import Step
from loopkit.registry import Divides, register


@register("attention", "template", provides={"double_backward", "cache"})
class Template(Attention):
    """Softmax attention with an additional zero logit that has no value, so a token can attend to nothing.

    y = exp(q k^T / sqrt(R)) v / (1 + sum exp(q k^T / sqrt(R)))

    Args:
        heads: Number of heads, H; divides the width.
    """

    def __init__(
        self, width: int, position: Position, layer: int, *, heads: Annotated[PositiveInt, Divides("width")]
    ) -> None:
        super().__init__()
        self.heads, self.layer = heads, layer
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.cached_numbers = 2 * width
        self._position = (
            position,
        )  # in a tuple, so that it is not registered as a child: its parameters belong to the model

    def forward(self, x: Tensor, step: Step) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each [B, H, T, R]
        q, k = self._position[0].rotate(q, k, step.positions)
        key_positions = step.positions
        if step.cache is not None:
            k, v, key_positions = step.cache.extend((step.k, self.layer), k, v, step.positions, step.rows)
        # PAD exceeds every position of a token, so this mask also excludes padding
        masked = (key_positions[:, None, :] > step.positions[:, :, None])[:, None]
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(masked, float("-inf"))
        zero_logit = torch.zeros_like(scores[..., :1])
        weights = torch.cat([scores, zero_logit], dim=-1).softmax(dim=-1)[..., :-1].to(v.dtype)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
