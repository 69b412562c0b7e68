"""Keys and values of tokens already seen, one slot per (loop, layer)."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from loopkit.loop.batch import PAD

Slot = tuple[int, int]
"""(loop, layer): a layer that runs in four loops has four slots, because its keys differ in each."""


class Cache(Protocol):
    """What attention asks of a cache. Policies that share or drop slots live in ``inference/``."""

    def extend(
        self, slot: Slot, keys: Tensor, values: Tensor, positions: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add the new tokens of a slot and return all that its queries may look at.

        Args:
            slot: (loop, layer).
            keys, values: ``[b, heads, T, size]`` of the new tokens.
            positions: ``[b, T]`` of the new tokens.
            rows: ``[b]`` which sequences of the batch these are; ``None``: all, in order.

        Returns:
            Keys and values ``[b, heads, S, size]`` and their positions ``[b, S]``, of the same sequences.
        """
        ...


class FullCache:
    """Every slot keeps every token.

    A sequence that stopped before a loop leaves a hole in that loop's slots; holes carry the position of padding, so
    nobody looks at them.

    Args:
        batch: Number of sequences.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.slots: dict[Slot, tuple[Tensor, Tensor, Tensor]] = {}

    def extend(
        self, slot: Slot, keys: Tensor, values: Tensor, positions: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        new = (keys, values, positions)
        if rows is not None:
            empty = (
                keys.new_zeros(self.batch, *keys.shape[1:]),
                values.new_zeros(self.batch, *values.shape[1:]),
                positions.new_full((self.batch, *positions.shape[1:]), PAD),
            )
            new = tuple(hole.index_copy(0, rows, part) for hole, part in zip(empty, new, strict=True))  # type: ignore[assignment]
        if slot in self.slots:
            old_keys, old_values, old_positions = self.slots[slot]
            new = (
                torch.cat([old_keys, new[0]], dim=2),
                torch.cat([old_values, new[1]], dim=2),
                torch.cat([old_positions, new[2]], dim=1),
            )
        self.slots[slot] = new
        if rows is None:
            return new
        return new[0][rows], new[1][rows], new[2][rows]

    @property
    def num_bytes(self) -> int:
        """Memory held by keys and values."""
        return sum(part.nbytes for entry in self.slots.values() for part in entry[:2])
