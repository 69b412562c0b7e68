"""Rows of tokens and labels, how they become a batch, and the digest of a step. Torch only where a batch is made."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from loopkit.loop import Batch

IGNORE, PAD = -100, 2**30  # as in loop/, which cannot be imported without torch; a test holds them equal


@dataclass(frozen=True)
class Row:
    """One sequence before padding.

    Shapes: int64 ``[T]`` each; a label is what its token is to predict, ``IGNORE`` where nothing is scored.
    """

    tokens: np.ndarray
    labels: np.ndarray


class Examples(ABC):
    """Numbered sequences, built when they are asked for.

    Args:
        pad: Token that fills rows on their right; it is seen by nobody.
        width: Length that every batch is padded to; ``None`` pads to the longest of its rows.
    """

    pad: int = 0
    width: int | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def row(self, index: int) -> Row:
        """The sequence of this number, unpadded."""

    def scored(self, indices: Sequence[int]) -> int:
        """Labels that these sequences score together."""
        return sum(int(np.count_nonzero(self.row(index).labels != IGNORE)) for index in indices)

    def real_tokens(self, indices: Sequence[int]) -> int:
        """Real tokens of these sequences together."""
        return sum(len(self.row(index).tokens) for index in indices)

    def batch(self, indices: Sequence[int], sample: Sequence[int] | None = None) -> Batch:
        """Sequences as one batch.

        Args:
            indices: Their numbers, from 0 to ``len(self) - 1``.
            sample: What to call each in ``Batch.sample``, for example its place in the stream of epochs; ``indices``
                if not given.
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
    """Pad rows on their right to one length.

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
    """Digest of the sequences of an optimizer step: 16 hexadecimal digits that no split into micro-batches changes.

    Args:
        examples: Where the sequences are.
        indices: All sequences of the step over all ranks, in order.
        sample: Their places in the stream of epochs.
    """
    digest = hashlib.sha256()
    for index, number in zip(indices, sample, strict=True):
        row = examples.row(index)
        digest.update(np.array([number, len(row.tokens)], dtype="<i8").tobytes())
        digest.update(row.tokens.astype("<i8").tobytes())
        digest.update(row.labels.astype("<i8").tobytes())
    return digest.hexdigest()[:16]
