"""The records that one loop leaves for the next, matched to the sequences that the next loop computes.

Dims: B sequences of the batch, b sequences that a loop computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from loopkit.loop.loops import Loops


def previous_records(
    records: Sequence[dict[str, Tensor]],
    computed: Sequence[Tensor | None],
    loops: Loops,
    num_sequences: int,
    k: int,
    rows: Tensor | None,
) -> dict[str, Tensor]:
    """Return the records of loop ``k - 1`` for the sequences that loop ``k`` computes; empty in loop 1.

    Args:
        records: One map for each loop so far; ``[b, ...]`` per sequence that the loop computed, or scalars.
        computed: ``[b]`` int64 for each loop so far, the sequences that it computed; ``None``: all.
        loops: The loops of the pass.
        num_sequences: B, sequences in the batch.
        k: The loop that reads the records.
        rows: ``[b]`` int64, sequences that loop ``k`` computes; ``None``: all.

    Returns:
        Records of ``rows``; zeros for a sequence that loop ``k - 1`` did not compute.
    """
    if not 2 <= k <= len(records) + 1:
        return {}
    previous, index = records[k - 2], computed[k - 2]
    if index is None and rows is None:
        return previous
    if index is not None and loops.per_sequence is not None:
        # a loop in which no sequence has started computes one, so that every rank makes the same calls
        started = loops.per_sequence.to(index.device)[index] > loops.total - (k - 1)
        previous = _mask(previous, started)
    return _align(previous, num_sequences, index, rows)


def _align(
    records: dict[str, Tensor], num_sequences: int, computed: Tensor | None, rows: Tensor | None
) -> dict[str, Tensor]:
    """Reorder per-sequence records from the sequences ``computed`` to the sequences ``rows``."""
    count = num_sequences if computed is None else len(computed)

    def align(value: Any) -> Any:
        if not _is_per_sequence(value, count):
            return value
        if computed is not None:
            value = value.new_zeros(num_sequences, *value.shape[1:]).index_copy(0, computed, value)
        return value if rows is None else value[rows]

    return {name: align(value) for name, value in records.items()}


def _mask(records: dict[str, Tensor], active: Tensor) -> dict[str, Tensor]:
    """Set per-sequence records to zero where ``active``, ``[b]`` bool, is false."""

    def mask(value: Any) -> Any:
        if not _is_per_sequence(value, len(active)):
            return value
        return value.where(active.view(-1, *(1,) * (value.dim() - 1)), value.new_zeros(()))

    return {name: mask(value) for name, value in records.items()}


def _is_per_sequence(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == count
