"""Dropout whose masks depend on the token and not on where it is computed.

Dims: B sequences, T tokens, D width, H heads, S keys.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor, nn

from loopkit.loop.noise import GOLDEN, mix
from loopkit.loop.step import Step


class Dropout(nn.Module):
    """Zero a share of the numbers in training, and scale the remaining ones up.

    Which ones is a function of (seed, optimizer step, sample, position, loop, place in the model, channel) alone. So
    another split of the batch, other ranks, recomputation and compilation change nothing but rounding.

    A row (the channels of a token, or the keys of a query) drops number j where r1 * c_j + r2, in 32 bits, is among
    the lowest ``rate`` of all values. The row's own r1 (odd) and r2 are random, c_j is the same for all rows. Any two
    numbers of a row are dropped independently of each other, as are rows; and it costs two operations a number, less
    than a draw from torch's generator.

    Args:
        rate: Share of numbers that is dropped, in [0, 1).
        place: Identifies this dropout in the model, such as ``("mlp", layer)``; equal places have equal masks.
    """

    def __init__(self, rate: float, *place: str | int) -> None:
        super().__init__()
        self.rate = rate
        # a tensor, because compiled code would be compiled anew for each layer's number; in a tuple, because it is
        # neither a weight nor state
        number = zlib.crc32("/".join(map(str, place)).encode()) * 2**31
        self._place = (torch.tensor(number, dtype=torch.int64, device="cpu"),)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``[B, T, D]``, or with further dimensions between, to the same shape."""
        return self.drop(x, _keys(step)) if self.active else x

    @property
    def active(self) -> bool:
        """Whether the module drops numbers: in training, with a rate above 0."""
        return self.training and self.rate > 0

    def drop(self, x: Tensor, keys_BT: Tensor) -> Tensor:
        """Return the same, from a random int64 number for each token."""
        return self._drop(x, self._rows(keys_BT, x.shape[2:-1]))

    def drop_weights(self, weights_BHTS: Tensor, step: Step) -> Tensor:
        """Attention weights, of which each query and head is a row."""
        rows_BTH = self._rows(_keys(step), weights_BHTS.shape[1:2])
        return self._drop(weights_BHTS, rows_BTH.transpose(1, 2))

    def _rows(self, keys_BT: Tensor, inner: torch.Size) -> Tensor:
        """Return a random int64 number for each row, ``[B, T, *inner]``."""
        keys = keys_BT + self._place[0]
        for size in inner:
            keys = keys[..., None] + torch.arange(1, size + 1, device=keys.device) * GOLDEN
            keys = mix(keys)
        return keys if inner else mix(keys)

    def _drop(self, x: Tensor, rows: Tensor) -> Tensor:
        """``[*rows, columns]`` to the same shape."""
        # int32 products wrap; the halves of a row's number are its r1 and r2
        first, second = _low(rows).bitwise_or_(1), rows.bitwise_right_shift(32).int()
        column = _low(mix(torch.arange(1, x.shape[-1] + 1, device=x.device) * GOLDEN))
        dropped = (first[..., None] * column).add_(second[..., None]) < round(self.rate * 2**32) - 2**31
        return torch.where(dropped, 0.0, x * (1 / (1 - self.rate)))

    def extra_repr(self) -> str:
        return f"{self.rate:g}"


def _low(x: Tensor) -> Tensor:
    """Return the lower half of int64 numbers, as int32."""
    return x.bitwise_left_shift(32).bitwise_right_shift_(32).int()


def _keys(step: Step) -> Tensor:
    return step.noise.tokens() if step.keys is None else step.keys
