"""Rows of tokens and labels, their batches, and the digest of a step. Only ``batch`` imports torch."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from loopkit.loop import Batch

IGNORE, PAD = -100, 2**30  # equal to those in loop/, whose import needs torch; a test compares them


@dataclass(frozen=True)
class Row:
    """One sequence before padding.

    Shapes: int64 ``[T]`` each; a label is the target of its token, ``IGNORE`` if it is not scored.
    """

    tokens: np.ndarray
    labels: np.ndarray


class Examples(ABC):
    """Numbered sequences, built on demand.

    Args:
        pad: Token that pads rows on the right; attention masks it.
        width: Length to which every batch is padded; ``None`` pads to the longest row.
    """

    pad: int = 0
    width: int | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def row(self, index: int) -> Row:
        """Return a sequence without padding."""

    def scored(self, indices: Sequence[int]) -> int:
        """Count the scored labels of these sequences."""
        return sum(int(np.count_nonzero(self.row(index).labels != IGNORE)) for index in indices)

    def real_tokens(self, indices: Sequence[int]) -> int:
        """Count the tokens of these sequences, without padding."""
        return sum(len(self.row(index).tokens) for index in indices)

    def batch(self, indices: Sequence[int], sample: Sequence[int] | None = None) -> Batch:
        """Build a batch.

        Args:
            indices: Numbers of the sequences, from 0 to ``len(self) - 1``.
            sample: ``Batch.sample``, for example positions in the stream of epochs; by default ``indices``.
        """
        import torch

        from loopkit.loop import Batch

        tokens, labels, positions = stack([self.row(index) for index in indices], pad=self.pad, width=self.width)
        return Batch(
            tokens=torch.from_numpy(tokens),
            labels=torch.from_numpy(labels),
            positions=torch.from_numpy(positions),
            sample=torch.from_numpy(np.array(indices if sample is None else sample, dtype=np.int64)),
            in_order=True,
            num_scored=int(np.count_nonzero(labels != IGNORE)),
        )


def stack(rows: Sequence[Row], *, pad: int, width: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pad rows on the right to one length.

    Shapes: tokens, labels and positions, int64 ``[B, T]``; padding has label ``IGNORE`` and position ``PAD``.
    """
    width = max(len(row.tokens) for row in rows) if width is None else width
    shape = (len(rows), width)
    tokens, labels = np.full(shape, pad, dtype=np.int64), np.full(shape, IGNORE, dtype=np.int64)
    positions = np.full(shape, PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        length = len(row.tokens)
        tokens[i, :length], labels[i, :length], positions[i, :length] = row.tokens, row.labels, np.arange(length)
    return tokens, labels, positions


def step_sha(examples: Examples, indices: Sequence[int], sample: Sequence[int]) -> str:
    """Compute a digest of the sequences of an optimizer step; it is independent of the split into micro-batches.

    Args:
        examples: The dataset.
        indices: All sequences of the step over all ranks, in order.
        sample: Their positions in the stream of epochs.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for index, number in zip(indices, sample, strict=True):
        row = examples.row(index)
        digest.update(np.array([number, len(row.tokens)], dtype="<i8").tobytes())
        digest.update(row.tokens.astype("<i8").tobytes())
        digest.update(row.labels.astype("<i8").tobytes())
    return digest.hexdigest()[:16]
