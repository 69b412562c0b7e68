"""The sequences of an evaluation in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from loopkit.loop import Batch

if TYPE_CHECKING:
    from loopkit.data import Scoring


class Batches:
    """Consecutive batches of the scored sequences, built when iterated; each iteration starts from the first.

    Args:
        scoring: The sequences.
        size: Sequences per batch; the last batch may have fewer.
        device: Where the batches go.
    """

    def __init__(self, scoring: Scoring, size: int, device: torch.device) -> None:
        self.scoring, self.size, self.device = scoring, size, device

    def __len__(self) -> int:
        return -(-len(self.scoring) // self.size)

    def __iter__(self) -> Iterator[Batch]:
        for first in range(0, len(self.scoring), self.size):
            rows = range(first, min(first + self.size, len(self.scoring)))
            yield self.scoring.batch(rows).to(self.device)
