"""Attention of one layer in one loop, through the attention functions of transformers.

Dims: B sequences, T tokens, H heads, G key heads, S keys, R head size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from loopkit.interop.templates.layers import CausalAttention


class LoopAttention(nn.Module):
    """Attention of one layer in one loop: no parameters, and the index of its own keys and values in the cache.

    Args:
        config: Selects the attention function.
        layer_idx: Number of the pair of loop and layer.
        attention: The layer, which all loops share.
    """

    def __init__(self, config: Any, layer_idx: int, attention: CausalAttention) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = attention.head_size
        self.num_key_value_groups = attention.heads // attention.kv_heads
        self.scaling = attention.head_size**-0.5
        self.attention_dropout = attention.dropout
        self.is_causal = True

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, cache: Any, **kwargs: Any) -> Tensor:
        """Queries ``[B, H, T, R]``, keys and values ``[B, G, T, R]`` of the new tokens, to ``[B, T, H, R]``."""
        if cache is not None:
            k, v = cache.update(k, v, self.layer_idx)
        name = self.config._attn_implementation
        attend = eager_attention if name == "eager" else ALL_ATTENTION_FUNCTIONS[name]
        dropout = self.attention_dropout if self.training else 0.0
        mixed, _ = attend(self, q, k, v, mask, dropout=dropout, scaling=self.scaling, **kwargs)
        return mixed


def eager_attention(
    module: LoopAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Return explicit softmax attention, ``[B, T, H, R]``, and its weights ``[B, H, T, S]``."""
    key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[-2]]
    weights = F.dropout(scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype), dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights
