"""The order of training: an endless stream of epochs, each shuffled anew, that can be entered anywhere."""

from __future__ import annotations

import numpy as np

from loopkit.errors import UserError

_DOMAIN = 0x5A17  # keeps the shuffle apart from other uses of the same seed


class Sampler:
    """Which sequence stands at which place of the stream of epochs; keeps no state between calls.

    Place ``g`` belongs to epoch ``g // size``. Every epoch has each sequence once, in an order that depends on seed and
    epoch alone; so a run that resumes, or runs on other ranks, only needs to know the place.

    Args:
        size: Sequences in an epoch.
        seed: Seed of the order, from 0.
        shuffle: False keeps the order of the text in every epoch.
    """

    def __init__(self, size: int, seed: int, *, shuffle: bool = True) -> None:
        if size < 1:
            raise UserError("there is no sequence to train on; give more text or a shorter data.length")
        self.size, self.seed, self.shuffle = size, seed, shuffle
        self._kept: tuple[int, np.ndarray] | None = None  # the last epoch asked for, to be quick

    def indices(self, start: int, count: int) -> list[int]:
        """The sequences at places ``start`` to ``start + count``, which may span epochs."""
        found: list[int] = []
        while len(found) < count:
            epoch, place = divmod(start + len(found), self.size)
            found += self._order(epoch)[place : place + count - len(found)].tolist()
        return found

    def epoch(self, place: int) -> float:
        """Epochs done before a place."""
        return place / self.size

    def _order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.size)
        if self._kept is None or self._kept[0] != epoch:
            bits = np.random.Philox(key=np.array([self.seed, epoch], dtype=np.uint64), counter=[0, 0, 0, _DOMAIN])
            self._kept = (epoch, np.random.Generator(bits).permutation(self.size))
        return self._kept[1]
