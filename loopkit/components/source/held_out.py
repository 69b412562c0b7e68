"""Which documents are held out when a corpus has no validation or test split of its own."""

from __future__ import annotations

import hashlib

from loopkit.components.source import TEST, TRAIN, VALIDATION


def place(text: str) -> float:
    """A number in [0, 1) that depends on the text alone, so that copies of a document are never in two splits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


def split_of(text: str, shares: dict[str, float]) -> str:
    """The split that a document falls into.

    Args:
        text: The document.
        shares: Share of the documents that validation and test are to have; the rest is train.
    """
    number = place(text)
    for split in (TEST, VALIDATION):
        share = shares.get(split, 0.0)
        if number < share:
            return split
        number -= share
    return TRAIN
