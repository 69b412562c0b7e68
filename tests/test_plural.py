"""Counts and their nouns in messages."""

from __future__ import annotations

import pytest

from loopkit.plural import plural


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (0, "loop", "0 loops"),
        (1, "loop", "1 loop"),
        (2000, "optimizer step", "2,000 optimizer steps"),
        (1, "batch", "1 batch"),
        (3, "batch", "3 batches"),
    ],
)
def test_plural(count: int, noun: str, expected: str) -> None:
    assert plural(count, noun) == expected
