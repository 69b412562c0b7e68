"""Keys and values of earlier tokens, one slot per (loop, layer)."""

from __future__ import annotations

from collections.abc import Mapping
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
    """The interface that attention and generation use. Policies that share or drop slots are in ``inference/``."""

    def extend(
        self, slot: Slot, keys: Tensor, values: Tensor, positions: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add the new tokens of a slot and return all tokens that its queries may attend to.

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
        """Drop all sequences except ``rows``.

        Args:
            rows: ``[b]`` int64, rows of the current batch to keep; they become 0 to b - 1.
        """
        ...

    def lengths(self) -> dict[Slot, int]:
        """Return the number of tokens in each slot."""
        ...

    def truncate(self, lengths: Mapping[Slot, int]) -> None:
        """Drop the tokens that were added since ``lengths``."""
        ...

    def mask_last(self, count: Tensor) -> None:
        """Hide the last tokens of each sequence from all later queries.

        Args:
            count: ``[B]`` int64, how many; all slots have got them in the last pass.
        """
        ...


@dataclass(frozen=True)
class CodaCache:
    """Exposes only the slots of a coda that reads loop ``k``.

    Args:
        cache: The cache of the whole pass.
        k: The loop that is read.
    """

    cache: Cache
    k: int

    def extend(
        self, slot: Slot, keys: Tensor, values: Tensor, positions: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.cache.extend((*slot, self.k), keys, values, positions, rows)

    def narrow(self, rows: Tensor) -> None:
        self.cache.narrow(rows)

    def lengths(self) -> dict[Slot, int]:
        return self.cache.lengths()

    def truncate(self, lengths: Mapping[Slot, int]) -> None:
        self.cache.truncate(lengths)

    def mask_last(self, count: Tensor) -> None:
        self.cache.mask_last(count)


class FullCache:
    """Keeps every token in every slot.

    A sequence that stopped before a loop has empty entries in that loop's slots. They have the position of padding, so
    attention masks them. Memory doubles when it is full, so a token is copied twice on average instead of once for
    every later token.

    Args:
        batch: Number of sequences.
        room: Maximum number of tokens in a sequence, the limit of reserved memory; ``None``: unknown.
    """

    def __init__(self, batch: int, room: int | None = None) -> None:
        self.batch, self.room = batch, room
        self._slots: dict[Slot, _SlotTokens] = {}

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
            new = tuple(target.index_copy(0, rows, part) for target, part in zip(empty, new, strict=True))  # type: ignore[assignment]
        if slot not in self._slots:
            self._slots[slot] = _SlotTokens(*new, length=positions.shape[1])
        else:
            self._slots[slot].append(new, self.room)
        extended = self._slots[slot].filled()
        if rows is None:
            return extended
        return extended[0][rows], extended[1][rows], extended[2][rows]

    def positions(self, k: int) -> list[Tensor]:
        """Positions of the tokens in the slots of loop ``k``, ``[B, S]`` for each layer; ``PAD`` for empty entries."""
        return [tokens.filled()[2] for slot, tokens in self._slots.items() if slot[0] == k]

    def narrow(self, rows: Tensor) -> None:
        for tokens in self._slots.values():
            tokens.keys, tokens.values, tokens.positions = (
                tokens.keys[rows],
                tokens.values[rows],
                tokens.positions[rows],
            )
        self.batch = len(rows)

    def lengths(self) -> dict[Slot, int]:
        return {slot: tokens.length for slot, tokens in self._slots.items()}

    def truncate(self, lengths: Mapping[Slot, int]) -> None:
        self._slots = {slot: tokens for slot, tokens in self._slots.items() if slot in lengths}
        for slot, tokens in self._slots.items():
            tokens.length = lengths[slot]

    def mask_last(self, count: Tensor) -> None:
        shared = int(count.min())  # what every sequence drops needs no memory
        for tokens in self._slots.values():
            index = torch.arange(tokens.length, device=count.device)
            tokens.positions[:, : tokens.length].masked_fill_(index >= tokens.length - count[:, None], PAD)
            tokens.length -= shared

    @property
    def slots(self) -> dict[Slot, tuple[Tensor, Tensor, Tensor]]:
        """Keys, values and positions of every slot."""
        return {slot: tokens.filled() for slot, tokens in self._slots.items()}

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values, including what is reserved for later tokens."""
        return sum(tokens.keys.nbytes + tokens.values.nbytes for tokens in self._slots.values())


@dataclass
class _SlotTokens:
    """The tokens of one slot; the tensors may be longer than ``length``."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    length: int

    def filled(self) -> tuple[Tensor, Tensor, Tensor]:
        n = self.length
        return self.keys[:, :, :n], self.values[:, :, :n], self.positions[:, :n]

    def append(self, new: tuple[Tensor, Tensor, Tensor], room: int | None) -> None:
        first, end = self.length, self.length + new[2].shape[1]
        if end > self.positions.shape[1]:
            self._grow(max(end, 2 * first if room is None else min(2 * first, room)))
        self.keys[:, :, first:end], self.values[:, :, first:end], self.positions[:, first:end] = new
        self.length = end

    def _grow(self, length: int) -> None:
        keys, values, positions = self.filled()
        extra = length - self.length
        self.keys = torch.cat([keys, keys.new_zeros(*keys.shape[:2], extra, keys.shape[3])], dim=2)
        self.values = torch.cat([values, values.new_zeros(*values.shape[:2], extra, values.shape[3])], dim=2)
        self.positions = torch.cat([positions, positions.new_full((len(positions), extra), PAD)], dim=1)
