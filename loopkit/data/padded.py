"""Examples of a prompt and an answer, one per row."""

from __future__ import annotations

import numpy as np

from loopkit.data.encoding.store import TokenStore
from loopkit.data.rows import IGNORE, Examples, Row
from loopkit.errors import UserError


class PaddedExamples(Examples):
    """One document per row, with loss on its learned parts.

    A document with more than ``length`` inputs is truncated: first the start of its prompt, up to one token before its
    first learned token, then its end. At least one learned token always remains. If documents have targets, labels are
    at the positions of their tokens, and nothing is truncated.

    Args:
        store: The tokens; each piece is a document.
        length: Maximum number of inputs in a row.
        documents: Use the first N documents; ``None`` for all.

    Raises:
        UserError: If a document with targets is longer than ``length``.
    """

    def __init__(self, store: TokenStore, length: int, *, documents: int | None = None, pad: int = 0) -> None:
        self.store, self.length, self.pad = store, length, pad
        self._bounds = store.boundaries()
        self._documents = len(self._bounds) - 1 if documents is None else documents
        longest = int(np.diff(self._bounds[: self._documents + 1]).max(initial=0))
        if store.in_place and longest > length:
            raise UserError(
                f"data.length: {length} is less than {longest}, the tokens of the longest example, which has a target "
                f"for each; set data.length to at least {longest}"
            )

    def __len__(self) -> int:
        return self._documents

    @property
    def truncated(self) -> int:
        """Number of truncated documents."""
        if self.store.in_place:
            return 0
        return int(np.count_nonzero(np.diff(self._bounds[: self._documents + 1]) > self.length + 1))

    def row(self, index: int) -> Row:
        start, stop = int(self._bounds[index]), int(self._bounds[index + 1])
        learn = self.store.learned(start, stop)
        if self.store.in_place:
            return Row(self.store.read(start, stop), np.where(learn, self.store.targets(start, stop), IGNORE))
        excess = (stop - start) - (self.length + 1)
        if excess > 0:
            first_answer = 1 + int(np.argmax(learn[1:]))
            cut = min(excess, first_answer - 1)
            start, stop = start + cut, start + cut + self.length + 1
            learn = learn[cut : cut + self.length + 1]
        tokens = self.store.read(start, stop)
        return Row(tokens[:-1], np.where(learn[1:], tokens[1:], IGNORE))
