"""The sequences of a batch that a loop computes: those that have started and not stopped. Dims: B sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.errors import UserError
from loopkit.loop import Loops
from loopkit.plural import plural


class Rows:
    """Tracks late starts and early stops.

    Args:
        loops: With ``per_sequence``, a sequence of ``n`` loops starts at loop ``total - n + 1``.
        batch: Number of sequences.
        device: Device of the indices.

    Raises:
        UserError: If ``per_sequence`` does not match the batch or exceeds the total.
    """

    def __init__(self, loops: Loops, batch: int, device: torch.device) -> None:
        self.total = loops.total
        self.batch = batch
        self.device = device
        self.counts = None if loops.per_sequence is None else loops.per_sequence.tolist()
        self.stopped: dict[int, int] = {}
        if self.counts is None:
            return
        if len(self.counts) != batch:
            raise UserError(f"loops: per_sequence has {plural(len(self.counts), 'number')} for {batch} sequences")
        if not all(1 <= count <= self.total for count in self.counts):
            raise UserError(f"loops: per_sequence must lie in 1..{self.total}, not {self.counts}")

    def _active(self, k: int) -> list[int]:
        started = [row for row in range(self.batch) if self.counts is None or k > self.total - self.counts[row]]
        return [row for row in started if row not in self.stopped]

    def mask(self, k: int) -> Tensor | None:
        """Return the sequences that loop ``k`` computes, ``[B]`` bool; ``None``: all."""
        active = range(self.batch) if self.counts is None and not self.stopped else self._active(k)
        if len(active) == self.batch:
            return None
        mask = torch.zeros(self.batch, dtype=torch.bool)
        mask[list(active)] = True
        return mask.to(self.device)

    def at(self, k: int) -> Tensor | None:
        """Sequences that loop ``k`` computes, ``[b]`` int64; ``None``: all.

        A loop without active sequences still computes the first sequence and discards the result, because every rank
        must make the same calls.
        """
        if self.counts is None and not self.stopped:
            return None
        active = self._active(k)
        if len(active) == self.batch:
            return None
        return torch.tensor(active or [0], device=self.device)

    def merge(self, old: Tensor, new: Tensor, k: int) -> Tensor:
        """Return ``new`` for the sequences that loop ``k`` computes, ``old`` for the others."""
        if (mask := self.mask(k)) is None:
            return new
        return torch.where(mask.view(-1, *(1,) * (old.dim() - 1)), new, old)

    def restore(self, c: Tensor, c_0: Tensor, k: int) -> Tensor:
        """After a prefix without gradient, reset sequences that start after loop ``k`` to ``c_0`` with its gradient."""
        waiting = [row for row in range(self.batch) if self.counts is not None and k <= self.total - self.counts[row]]
        if not waiting:
            return c
        index = torch.tensor(waiting, device=self.device)
        return c.index_copy(0, index, c_0[index])

    def finish(self, mask: Tensor, k: int) -> bool:
        """Stop the active sequences in ``mask`` after loop ``k``; return whether all have stopped."""
        stops = mask.tolist()
        if len(stops) != self.batch:
            raise UserError(f"after_loop: returned {plural(len(stops), 'value')} for {self.batch} sequences")
        for row in self._active(k):
            if stops[row]:
                self.stopped[row] = k
        return len(self.stopped) == self.batch

    def depth(self, reached: int) -> Tensor | None:
        """Loops that each sequence ran, ``[B]`` int64; ``None``: all ran ``reached``."""
        if self.counts is None and not self.stopped:
            return None
        counts = [self.total] * self.batch if self.counts is None else self.counts
        idle = [self.total - count for count in counts]
        loops_run = [self.stopped.get(row, reached) - idle[row] for row in range(self.batch)]
        return torch.tensor(loops_run, device=self.device)
