"""The order of training: an endless stream of shuffled epochs with random access."""

from __future__ import annotations

import numpy as np

from loopkit.errors import UserError

_DOMAIN = 0x5A17  # separates the shuffle from other uses of the same seed


class Sampler:
    """Maps positions in the stream of epochs to sequences; stateless.

    Position ``g`` belongs to epoch ``g // size``. Every epoch has each sequence once, in an order that depends only on
    seed and epoch. A resumed run, or one with another number of ranks, therefore needs only the position.

    Args:
        size: Number of sequences in an epoch.
        seed: Seed of the order, >= 0.
        shuffle: False keeps the order of the text in every epoch.
    """

    def __init__(self, size: int, seed: int, *, shuffle: bool = True) -> None:
        if size < 1:
            raise UserError("the training split has no sequences; add text or lower data.length")
        self.size, self.seed, self.shuffle = size, seed, shuffle
        self._cached: tuple[int, np.ndarray] | None = None  # epoch and order of the last call

    def indices(self, start: int, count: int) -> list[int]:
        """Return the sequences at positions ``start`` to ``start + count``, which may span epochs."""
        indices: list[int] = []
        while len(indices) < count:
            epoch, offset = divmod(start + len(indices), self.size)
            indices += self._order(epoch)[offset : offset + count - len(indices)].tolist()
        return indices

    def _order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.size)
        if self._cached is None or self._cached[0] != epoch:
            bits = np.random.Philox(key=np.array([self.seed, epoch], dtype=np.uint64), counter=[0, 0, 0, _DOMAIN])
            self._cached = (epoch, np.random.Generator(bits).permutation(self.size))
        return self._cached[1]
