"""The two slices of an early-exit benchmark: one to calibrate on, another to time, with no sequence in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from loopkit.errors import UserError
from loopkit.evaluation.context import split_of
from loopkit.loop import PAD, Batch

if TYPE_CHECKING:
    from loopkit.data import Prepared, Scoring

PAPER_SEQUENCES = 160
"""Sequences in each slice, in arXiv:2606.24898."""


@dataclass(frozen=True)
class Slice:
    """Consecutive sequences of a split, each token of which is scored once.

    Args:
        split: Name of the split.
        fingerprint: Of the split's text.
        scoring: The sequences of the split.
        rows: Which of them.
    """

    split: str
    fingerprint: str
    scoring: Scoring
    rows: range

    @property
    def tokens_scored(self) -> int:
        """Labels in it."""
        return self.scoring.scored(self.rows)

    def batches(self, size: int, device: torch.device) -> list[Batch]:
        """All of it in memory, so that reading it is not timed."""
        parts = [self.rows[first : first + size] for first in range(0, len(self.rows), size)]
        return [self.scoring.batch(part).to(device) for part in parts]

    def to_json(self) -> dict[str, Any]:
        """What it is."""
        return {
            "split": self.split,
            "data": self.fingerprint,
            "first_sequence": self.rows.start,
            "sequences": len(self.rows),
            "tokens_scored": self.tokens_scored,
        }


def two_slices(
    prepared: Prepared, split: str, calibrate_on: str | None, length: int, sequences: int | None
) -> tuple[Slice, Slice]:
    """Where to calibrate, and where to time.

    Args:
        prepared: Tokenizer and encoded splits.
        split: Where to time.
        calibrate_on: Where to calibrate; ``None``: on the sequences of ``split`` before those that are timed.
        length: Inputs of a window; windows do not overlap.
        sequences: In each slice; ``None``: 160, or as many as there are.

    Raises:
        ValueError: If there are too few sequences, or both splits are one.
    """
    if calibrate_on == split:
        raise UserError(f"calibrate_on is {split!r}, which is timed; leave it out to calibrate on another part of it")
    timed = split_of(prepared, split)
    timed_scoring = timed.scoring(length)
    if calibrate_on is None:
        count = _count(len(timed_scoring) // 2, sequences, f"half of {split}")
        print_ = timed.report.fingerprint
        first, second = range(count), range(count, 2 * count)
        return Slice(split, print_, timed_scoring, first), Slice(split, print_, timed_scoring, second)
    other = split_of(prepared, calibrate_on)
    scoring = other.scoring(length)
    count = _count(min(len(scoring), len(timed_scoring)), sequences, f"the smaller of {calibrate_on} and {split}")
    return (
        Slice(calibrate_on, other.report.fingerprint, scoring, range(count)),
        Slice(split, timed.report.fingerprint, timed_scoring, range(count)),
    )


def _count(there: int, wanted: int | None, where: str) -> int:
    count = min(PAPER_SEQUENCES, max(there, 1)) if wanted is None else wanted
    if count < 1:
        raise UserError(f"an early-exit benchmark needs at least one sequence, not {count}")
    if count > there:
        raise UserError(f"{where} holds {there:,} sequences, not {count:,}; ask for fewer, or give more text")
    return count


def real_tokens(batches: Sequence[Batch]) -> int:
    """Tokens that are not padding."""
    return sum(int((batch.positions < PAD).sum()) for batch in batches)
