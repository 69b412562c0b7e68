"""Random numbers of the first state: a function of (sample, position, channel), in any batch and with any cache.

Dims: B sequences, T tokens.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

MASK = 2**64 - 1
GOLDEN = -7046029254386353131
MIX = (-4658895280553007687, -7723592293110705685)
"""2**64 / golden ratio, and the multipliers of SplitMix64, as signed numbers."""


def mix(x: int) -> int:
    """Return SplitMix64's finaliser of a 64-bit number, signed."""
    x &= MASK
    x = ((x ^ (x >> 30)) * (MIX[0] & MASK)) & MASK
    x = ((x ^ (x >> 27)) * (MIX[1] & MASK)) & MASK
    x ^= x >> 31
    return x - 2**64 if x >= 2**63 else x


STREAM = mix(GOLDEN)
KEY = mix(mix(0) + GOLDEN) ^ STREAM
"""The key of seed 0 and step 0, in the stream of the first state."""


def uniform(sample: Tensor, positions: Tensor, channels: int) -> Tensor:
    """Numbers in (0, 1), ``[B, T, channels]`` float64, from int64 samples ``[B]`` and positions ``[B, T]``."""
    tokens = _mix(_mix(sample * GOLDEN + KEY)[:, None] + positions * GOLDEN)
    channel = torch.arange(1, channels + 1, device=positions.device) * GOLDEN
    return (_shift(_mix(tokens[..., None] + channel), 11).double() + 0.5) * 2.0**-53


def normal(sample: Tensor, positions: Tensor, channels: int) -> Tensor:
    """Standard normal numbers, ``[B, T, channels]`` float32."""
    return ((uniform(sample, positions, channels) * 2 - 1).erfinv() * math.sqrt(2)).float()


def sample_keys(input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """Return a key for each prompt, a hash of its tokens without padding, ``[B]`` int64."""
    rows = input_ids.tolist()
    masks = [[1] * len(row) for row in rows] if attention_mask is None else attention_mask.tolist()
    texts = [
        ",".join(str(token) for token, keep in zip(*pair, strict=True) if keep)
        for pair in zip(rows, masks, strict=True)
    ]
    keys = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1 for text in texts]
    return torch.tensor(keys, dtype=torch.int64, device=input_ids.device)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * MIX[0]
    x = (x ^ _shift(x, 27)) * MIX[1]
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64, which torch shifts arithmetically."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
