"""A data source. It does not import torch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import ClassVar

from pydantic import PositiveInt

from loopkit.components.source import TEST, TRAIN, VALIDATION, Document, Source, Span, Words, canonical_split
from loopkit.errors import UserError
from loopkit.registry import register

REDUCTIONS = {TRAIN: 1, VALIDATION: 10, TEST: 10}
"""Number of training lines per line of each split."""


@register("source", "template", layout="stream")
class Template(Source):
    r"""Generate arithmetic sequences, one per line: ``7 10 13 16``.

    Args:
        lines: Number of lines of the training split.
        terms: Length of a sequence.
        join: Text between two lines; null for none.
    """

    words: ClassVar[Words | None] = "words"  # the unit of perplexity per word

    def __init__(self, *, lines: PositiveInt = 2000, terms: PositiveInt = 8, join: str | None = "\n") -> None:
        self.lines, self.terms, self.join = lines, terms, join

    def fingerprint(self, split: str) -> str:
        content = f"counting {self._num_lines(split)} {self.terms} {canonical_split(split)}"
        return hashlib.sha256(content.encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        num_lines, name = self._num_lines(split), canonical_split(split)
        rng = random.Random(name)  # the same lines each time, and different lines in each split
        for index in range(num_lines):
            first, step = rng.randrange(100), rng.randrange(1, 20)
            line = " ".join(str(first + step * i) for i in range(self.terms))
            yield Document((Span(line),), f"{name}:{index}")

    def _num_lines(self, split: str) -> int:
        name = canonical_split(split)
        if name not in REDUCTIONS:
            raise UserError(f"data.source has no split {split!r}; use one of {', '.join(REDUCTIONS)}")
        return max(self.lines // REDUCTIONS[name], 1)
