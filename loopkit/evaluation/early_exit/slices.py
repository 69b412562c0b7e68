"""The two disjoint slices of an early-exit benchmark: one for calibration, one for timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from loopkit.errors import UserError
from loopkit.evaluation.context import get_split
from loopkit.loop import PAD, Batch
from loopkit.plural import plural

if TYPE_CHECKING:
    from loopkit.data import Prepared, Scoring

PAPER_SEQUENCES = 160
"""Sequences in each slice, in arXiv:2606.24898."""


@dataclass(frozen=True)
class Slice:
    """Consecutive sequences of a split; each of their tokens is scored once.

    Args:
        split: Name of the split.
        fingerprint: Of the split's text.
        scoring: The sequences of the split.
        rows: Indices of the slice's sequences.
    """

    split: str
    fingerprint: str
    scoring: Scoring
    rows: range

    @property
    def tokens_scored(self) -> int:
        """Number of labels in the slice."""
        return self.scoring.scored(self.rows)

    def batches(self, size: int, device: torch.device) -> list[Batch]:
        """Return the slice in memory, so that reading is not timed."""
        parts = [self.rows[first : first + size] for first in range(0, len(self.rows), size)]
        return [self.scoring.batch(part).to(device) for part in parts]

    def to_json(self) -> dict[str, Any]:
        """Return the description of the slice for the result."""
        return {
            "split": self.split,
            "data": self.fingerprint,
            "first_sequence": self.rows.start,
            "sequences": len(self.rows),
            "tokens_scored": self.tokens_scored,
        }


def build_slices(
    prepared: Prepared, split: str, calibrate_on: str | None, length: int, sequences: int | None
) -> tuple[Slice, Slice]:
    """Build the calibration slice and the timed slice.

    Args:
        prepared: Tokenizer and encoded splits.
        split: Split to time.
        calibrate_on: Split to calibrate on; ``None``: the sequences of ``split`` before the timed ones.
        length: Inputs of a window; windows do not overlap.
        sequences: Number in each slice; ``None``: 160, or all available ones.

    Raises:
        UserError: If there are too few sequences, or both splits are the same.
    """
    if calibrate_on == split:
        raise UserError(
            f"calibrate_on: {split!r} is also the timed split; omit it to calibrate on another part of that split"
        )
    timed = get_split(prepared, split)
    timed_scoring = timed.scoring(length)
    if calibrate_on is None:
        count = _count(len(timed_scoring) // 2, sequences, f"half of {split}")
        fingerprint = timed.report.fingerprint
        first, second = range(count), range(count, 2 * count)
        return Slice(split, fingerprint, timed_scoring, first), Slice(split, fingerprint, timed_scoring, second)
    other = get_split(prepared, calibrate_on)
    scoring = other.scoring(length)
    count = _count(min(len(scoring), len(timed_scoring)), sequences, f"the smaller of {calibrate_on} and {split}")
    return (
        Slice(calibrate_on, other.report.fingerprint, scoring, range(count)),
        Slice(split, timed.report.fingerprint, timed_scoring, range(count)),
    )


def _count(available: int, requested: int | None, where: str) -> int:
    count = min(PAPER_SEQUENCES, max(available, 1)) if requested is None else requested
    if count < 1:
        raise UserError(f"an early-exit benchmark needs at least one sequence, not {count}")
    if count > available:
        raise UserError(f"{where} contains {plural(available, 'sequence')}, not {count:,}; request fewer or add text")
    return count


def count_tokens(batches: Sequence[Batch]) -> int:
    """Count the tokens that are not padding."""
    return sum(int((batch.positions < PAD).sum()) for batch in batches)
