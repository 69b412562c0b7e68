"""Random numbers keyed by token, independent of where the token is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

GOLDEN = -7046029254386353131
"""2**64 / golden ratio, odd, as a signed number: multiples of it are far apart."""
_MIX_1 = -4658895280553007687  # the two multipliers of SplitMix64
_MIX_2 = -7723592293110705685


@dataclass(frozen=True)
class Noise:
    """Counter-based noise: a number is a function of (seed, optimizer step, sample, position, stream, channel) alone.

    So it is the same for any split of the batch, on any rank, under recomputation, and in cached decoding.

    Args:
        seed: The run's seed.
        step: Optimizer step; 0 in evaluation.
        sample: ``[B]`` int64, number of each sequence.
        positions: ``[B, T]`` int64, place of each token.
        stream: Separates draws of one token, one number or ``[B]`` int64; see ``fold``.
    """

    seed: int
    step: int
    sample: Tensor
    positions: Tensor
    stream: int | Tensor = 0

    def fold(self, number: int | Tensor) -> Noise:
        """Return an independent stream, such as that of loop ``number``: one for all, or ``[B]`` int64."""
        offset = GOLDEN * (number + 1)
        stream = self.stream + (offset if isinstance(offset, Tensor) else _signed(offset))
        return replace(self, stream=mix(stream) if isinstance(stream, Tensor) else _mix_int(stream))

    def rows(self, index: Tensor) -> Noise:
        """Return the noise of some of the sequences."""
        stream = self.stream[index] if isinstance(self.stream, Tensor) else self.stream
        return replace(self, sample=self.sample[index], positions=self.positions[index], stream=stream)

    def tokens(self) -> Tensor:
        """Return a random number for each token, ``[B, T]`` int64; the same again at every call."""
        key = _mix_int(_mix_int(self.seed) + GOLDEN * (self.step + 1)) ^ self.stream
        return mix(mix(self.sample * GOLDEN + key)[:, None] + self.positions * GOLDEN)

    def uniform(self, *trailing: int) -> Tensor:
        """Numbers in the open interval (0, 1), ``[B, T, *trailing]`` float64; the same again at every call."""
        count = math.prod(trailing)
        channel = torch.arange(1, count + 1, device=self.positions.device) * GOLDEN
        bits = mix(self.tokens()[..., None] + channel)
        # 53 random bits at the middle of their cell: neither 0 nor 1 can come out
        cells = _shift(bits, 11, bits).double().add_(0.5).mul_(2.0**-53)
        return cells.reshape(*self.positions.shape, *trailing)

    def normal(self, *trailing: int) -> Tensor:
        """Standard normal numbers, ``[B, T, *trailing]`` float32; the same again at every call."""
        # by the inverse of the distribution: one number for one, and half the time of Box and Muller's pairs
        return self.uniform(*trailing).mul_(2).sub_(1).erfinv_().mul_(math.sqrt(2)).float()


def _shift(x: Tensor, bits: int, out: Tensor) -> Tensor:
    """Logical right shift of int64, which torch shifts arithmetically; into ``out``."""
    return torch.bitwise_right_shift(x, bits, out=out).bitwise_and_((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser: every output bit depends on every input bit. int64 products wrap.

    In place: fresh memory would cost more than the arithmetic. On ``meta`` there is no arithmetic, and each operation
    would cost a tenth of a millisecond.
    """
    if x.is_meta:
        return x
    scratch = torch.empty_like(x)
    x.bitwise_xor_(_shift(x, 30, scratch)).mul_(_MIX_1)
    x.bitwise_xor_(_shift(x, 27, scratch)).mul_(_MIX_2)
    return x.bitwise_xor_(_shift(x, 31, scratch))


def _mix_int(x: int) -> int:
    """Return the same for a Python integer; signed, so that it can meet an int64 tensor."""
    x &= 2**64 - 1
    x = ((x ^ (x >> 30)) * (_MIX_1 & (2**64 - 1))) & (2**64 - 1)
    x = ((x ^ (x >> 27)) * (_MIX_2 & (2**64 - 1))) & (2**64 - 1)
    return _signed(x ^ (x >> 31))


def _signed(x: int) -> int:
    """A Python integer modulo 2**64, in the range of int64."""
    x &= 2**64 - 1
    return x - 2**64 if x >= 2**63 else x
