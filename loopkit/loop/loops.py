"""The number of loops of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Loops:
    """How many times the core runs, and how much of that carries gradient.

    Args:
        total: Core calls, >= 0; equal on every rank.
        backprop: The last ``backprop`` of them carry gradient, 1 to ``total`` (0 only when ``total`` is).
        per_sequence: ``[B]`` int64, loops of each sequence, 1 to ``total``; best on the CPU. A sequence holds the
            starting state until ``total - n``, so all end at the same loop. ``None``: all run ``total``.
        times: ``total + 1`` rising points from 0 to 1; ``()`` means ``k / total``.

    Raises:
        ValueError: If the numbers contradict each other.
    """

    total: int
    backprop: int
    per_sequence: Tensor | None = None
    times: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.total < 0:
            raise ValueError(f"loops: total must be at least 0, not {self.total}")
        lowest = min(1, self.total)
        if not lowest <= self.backprop <= self.total:
            raise ValueError(f"loops: backprop must be {lowest} to total = {self.total}, not {self.backprop}")
        if self.times and (len(self.times) != self.total + 1 or list(self.times) != sorted(self.times)):
            raise ValueError(
                f"loops: times must be {self.total + 1} rising points, one more than total, not {self.times}"
            )
        if self.times and (self.times[0] != 0 or self.times[-1] != 1):
            raise ValueError(f"loops: times must go from 0 to 1, not from {self.times[0]} to {self.times[-1]}")

    @classmethod
    def fixed(cls, total: int, backprop: int | None = None) -> Loops:
        """Return ``total`` loops for every sequence, with gradient through all of them or the last ``backprop``."""
        return cls(total, total if backprop is None else backprop)

    def own(self, k: int) -> int | Tensor:
        """Return loop ``k`` counted from each sequence's first loop, ``[B]`` int64, 0 if it has not started.

        A sequence of fewer loops starts late, so this number does not depend on the batch that the sequence is in. One
        number if all sequences start together.
        """
        return k if self.per_sequence is None else (self.per_sequence + (k - self.total)).clamp(min=0)

    def time(self, k: int) -> float:
        """Return the point at the end of loop ``k``, from 0 to 1; outside of ``0..total`` the nearer end."""
        k = min(max(k, 0), self.total)
        if self.times:
            return self.times[k]
        return k / self.total if self.total else 0.0
