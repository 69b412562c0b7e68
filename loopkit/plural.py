"""Counts with their noun, for messages."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 loop``, ``2,000 steps``, ``1 batch``, ``3 batches``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
