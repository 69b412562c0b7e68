"""Hold documents out of train if a corpus has no validation or test split."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from loopkit.components.source import TEST, TRAIN, VALIDATION
from loopkit.errors import UserError


def _hash(text: str) -> float:
    """Map a text to a number in [0, 1), so that copies of a document are in the same split."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


def split_of(text: str, shares: dict[str, float]) -> str:
    """Return the split of a document.

    Args:
        text: The document.
        shares: Shares of the documents for validation and test; the remaining documents are train.
    """
    number = _hash(text)
    for split in (TEST, VALIDATION):
        share = shares.get(split, 0.0)
        if number < share:
            return split
        number -= share
    return TRAIN


def check_shares(validation: float, test: float) -> dict[str, float]:
    """Return the shares by split, or raise a ``UserError`` if they leave nothing to train on."""
    if validation + test >= 1:
        raise UserError(f"data.source: validation {validation} and test {test} leave nothing to train on; lower them")
    return {VALIDATION: validation, TEST: test}


def carved_splits(split: str, existing: Collection[str], shares: dict[str, float]) -> dict[str, float]:
    """Return the shares of the splits that are held out of train, because they do not exist.

    Raises:
        UserError: If ``split`` neither exists nor can be held out.
    """
    carved = {name: share for name, share in shares.items() if name not in existing and share > 0}
    if split not in existing and split not in carved:
        raise UserError(f"data.source: there is no {split} split, only {', '.join([*existing, *carved])}")
    if split in carved and TRAIN not in existing:
        raise UserError(f"data.source: there is no {split} split, and no train split to hold it out of")
    return carved
