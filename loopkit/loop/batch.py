"""A batch of token sequences. Dims: B sequences, T tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

PAD = 2**30
"""Position of padding. Larger than any real position, so no real token attends to it."""

IGNORE = -100
"""Label of a token that is not scored."""


@dataclass(frozen=True)
class Batch:
    """Token sequences with labels and positions, all ``[B, T]`` and int64.

    Args:
        tokens: Token numbers.
        labels: The next token that each token should predict (already shifted); ``IGNORE``: not scored.
        positions: Position of each token in its sequence, from 0; ``PAD`` for padding.
        sample: ``[B]``, number of each sequence in the epoch; it keys the noise and enters the batch hash.
        in_order: Whether index order is position order with all padding at the end, so that a plain causal mask is
            correct. ``None``: computed once per batch, fastest on the CPU; ``to``, ``split`` and ``rows`` keep it.
        num_scored: Number of tokens with a label; -1 counts them.

    Raises:
        ValueError: If a shape or dtype is wrong.
    """

    tokens: Tensor
    labels: Tensor
    positions: Tensor
    sample: Tensor
    in_order: bool | None = None
    num_scored: int = -1

    def __post_init__(self) -> None:
        shape = self.tokens.shape
        if self.tokens.dim() != 2:
            raise ValueError(f"batch: tokens must be [B, T], not {list(shape)}")
        for name, value, expected in (
            ("labels", self.labels, shape),
            ("positions", self.positions, shape),
            ("sample", self.sample, shape[:1]),
        ):
            if value.shape != expected:
                raise ValueError(f"batch: {name} must be {list(expected)} like the tokens, not {list(value.shape)}")
        for name in ("tokens", "labels", "positions", "sample"):
            if getattr(self, name).dtype != torch.int64:
                raise ValueError(f"batch: {name} must be int64, not {getattr(self, name).dtype}")
        if self.in_order is None:
            object.__setattr__(self, "in_order", _in_order(self.positions))
        if self.num_scored < 0:
            count = self.labels.numel() if self.labels.is_meta else int(self.scored.sum())
            object.__setattr__(self, "num_scored", count)

    @classmethod
    def of(cls, tokens: Tensor, labels: Tensor | None = None, *, sample: Tensor | None = None) -> Batch:
        """Build a batch of unpadded sequences that start at position 0; without labels no token is scored."""
        rows, length = tokens.shape
        return cls(
            tokens=tokens,
            labels=torch.full_like(tokens, IGNORE) if labels is None else labels,
            positions=torch.arange(length, device=tokens.device).expand(rows, length),
            sample=torch.arange(rows, device=tokens.device) if sample is None else sample,
            in_order=True,
        )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Copy the batch to another device."""
        names = ("tokens", "labels", "positions", "sample")
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=non_blocking) for name in names})

    def rows(self, index: Tensor | slice) -> Batch:
        """Select sequences."""
        names = ("tokens", "labels", "positions", "sample")
        return replace(self, **{name: getattr(self, name)[index] for name in names}, num_scored=-1)

    def split(self, size: int) -> list[Batch]:
        """Consecutive parts of at most ``size`` sequences."""
        return [self.rows(slice(first, first + size)) for first in range(0, len(self), size)]

    def tokens_before(self, length: int) -> Batch:
        """Return the first ``length`` tokens of every sequence."""
        names = ("tokens", "labels", "positions")
        return replace(self, **{name: getattr(self, name)[:, :length] for name in names}, num_scored=-1)

    @property
    def scored(self) -> Tensor:
        """``[B, T]`` bool: tokens that have a label."""
        return self.labels != IGNORE

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    def __len__(self) -> int:
        return self.tokens.shape[0]


def _in_order(positions: Tensor) -> bool:
    """Check whether real positions rise along every row, with padding only after them; assumed on ``meta``."""
    if positions.is_meta:
        return True
    before, after = positions[:, :-1], positions[:, 1:]
    real = (before < PAD) & (after < PAD)
    if bool(((after <= before) & real).any()):
        raise ValueError("batch: positions must rise along each sequence")
    return not bool(((before >= PAD) & (after < PAD)).any())
