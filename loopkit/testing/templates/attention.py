"""Attention. Letters: B sequences, T tokens, D width, H heads, S keys, R head size."""

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
    """Softmax attention that may look at nothing: one is added to the denominator.

    exp(q k^T / sqrt(R)) v / (1 + sum exp(q k^T / sqrt(R)))

    Args:
        heads: Number of heads.
    """

    def __init__(
        self, width: int, position: Position, layer: int, *, heads: Annotated[PositiveInt, Divides("width")]
    ) -> None:
        super().__init__()
        self.heads, self.layer = heads, layer
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.cached_numbers = 2 * width
        self._position = (position,)  # in a tuple, because its parameters belong to the model and not to every layer

    def forward(self, x: Tensor, step: Step) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each [B, H, T, R]
        q, k = self._position[0].rotate(q, k, step.positions)
        seen = step.positions
        if step.cache is not None:
            k, v, seen = step.cache.extend((step.k, self.layer), k, v, step.positions, step.rows)
        # padding has a position past every real one, so this mask hides it too
        hidden = (seen[:, None, :] > step.positions[:, :, None])[:, None]
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(hidden, float("-inf"))
        nothing = torch.zeros_like(scores[..., :1])
        weights = torch.cat([scores, nothing], dim=-1).softmax(dim=-1)[..., :-1].to(v.dtype)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
