"""Keys and values of tokens already seen, one slot per (loop, layer)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from loopkit.loop.batch import PAD

Slot = tuple[int, ...]
"""(loop, layer): a layer that runs in four loops has four slots, because its keys differ in each.

A coda runs once for every loop that is read, so its slots name that loop as well: (loop, layer, loop read).
"""


class Cache(Protocol):
    """What attention and generation ask of a cache. Policies that share or drop slots live in ``inference/``."""

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

    def narrow(self, rows: Tensor) -> None:
        """Forget all sequences but these.

        Args:
            rows: ``[b]`` int64, their numbers in the batch as it was; they become 0 to b - 1.
        """
        ...


@dataclass(frozen=True)
class CodaCache:
    """A cache as the coda sees it that reads one loop: its keys of other loops are none of its business.

    Args:
        whole: The cache.
        k: The loop that is read.
    """

    whole: Cache
    k: int

    def extend(
        self, slot: Slot, keys: Tensor, values: Tensor, positions: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.whole.extend((*slot, self.k), keys, values, positions, rows)

    def narrow(self, rows: Tensor) -> None:
        self.whole.narrow(rows)


class FullCache:
    """Every slot keeps every token.

    A sequence that stopped before a loop leaves a hole in that loop's slots; holes carry the position of padding, so
    nobody looks at them. Memory doubles when it is used up, so a token is copied twice on average and not once for
    each token after it.

    Args:
        batch: Number of sequences.
        room: Most tokens of a sequence that will ever come, so that no more is reserved; ``None``: unknown.
    """

    def __init__(self, batch: int, room: int | None = None) -> None:
        self.batch, self.room = batch, room
        self._held: dict[Slot, _Held] = {}

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
        if slot not in self._held:
            self._held[slot] = _Held(*new, length=positions.shape[1])
        else:
            self._held[slot].append(new, self.room)
        seen = self._held[slot].seen()
        if rows is None:
            return seen
        return seen[0][rows], seen[1][rows], seen[2][rows]

    def positions(self, k: int) -> list[Tensor]:
        """Positions of the tokens that loop ``k`` holds, ``[B, S]`` for each of its layers; holes carry ``PAD``."""
        return [held.seen()[2] for slot, held in self._held.items() if slot[0] == k]

    def narrow(self, rows: Tensor) -> None:
        for held in self._held.values():
            held.keys, held.values, held.positions = held.keys[rows], held.values[rows], held.positions[rows]
        self.batch = len(rows)

    @property
    def slots(self) -> dict[Slot, tuple[Tensor, Tensor, Tensor]]:
        """Keys, values and positions of every slot."""
        return {slot: held.seen() for slot, held in self._held.items()}

    @property
    def num_bytes(self) -> int:
        """Memory held by keys and values, with what is reserved for tokens to come."""
        return sum(held.keys.nbytes + held.values.nbytes for held in self._held.values())


@dataclass
class _Held:
    """The tokens of one slot, in tensors that may be longer than what is in them."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    length: int

    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        n = self.length
        return self.keys[:, :, :n], self.values[:, :, :n], self.positions[:, :n]

    def append(self, new: tuple[Tensor, Tensor, Tensor], room: int | None) -> None:
        first, end = self.length, self.length + new[2].shape[1]
        if end > self.positions.shape[1]:
            self._grow(max(end, 2 * first if room is None else min(2 * first, room)))
        self.keys[:, :, first:end], self.values[:, :, first:end], self.positions[:, first:end] = new
        self.length = end

    def _grow(self, length: int) -> None:
        keys, values, positions = self.seen()
        more = length - self.length
        self.keys = torch.cat([keys, keys.new_zeros(*keys.shape[:2], more, keys.shape[3])], dim=2)
        self.values = torch.cat([values, values.new_zeros(*values.shape[:2], more, values.shape[3])], dim=2)
        self.positions = torch.cat([positions, positions.new_full((len(positions), more), PAD)], dim=1)
