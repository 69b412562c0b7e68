"""A source. It needs no torch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import ClassVar

from pydantic import PositiveInt

from loopkit.components.source import TEST, TRAIN, VALIDATION, Document, Source, Span, Words, canonical_split
from loopkit.registry import register

PARTS = {TRAIN: 1, VALIDATION: 10, TEST: 10}
"""How many times smaller each split is than train."""


@register("source", "template", layout="stream")
class Template(Source):
    r"""Lines that count in steps: ``7 10 13 16``; made, not read, so nothing is fetched.

    Args:
        lines: Lines of the training split.
        terms: Numbers in a line.
        join: Text put between two lines; null puts nothing.
    """

    words: ClassVar[Words | None] = "words"  # what a perplexity per word divides by

    def __init__(self, *, lines: PositiveInt = 2000, terms: PositiveInt = 8, join: str | None = "\n") -> None:
        self.lines, self.terms, self.join = lines, terms, join

    def fingerprint(self, split: str) -> str:
        facts = f"counting {self._number(split)} {self.terms} {canonical_split(split)}"
        return hashlib.sha256(facts.encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        count, name = self._number(split), canonical_split(split)
        chance = random.Random(name)  # keyed by the split: the same lines each time, others in each
        for number in range(count):
            first, step = chance.randrange(100), chance.randrange(1, 20)
            line = " ".join(str(first + step * place) for place in range(self.terms))
            yield Document((Span(line),), f"{name}:{number}")

    def _number(self, split: str) -> int:
        name = canonical_split(split)
        if name not in PARTS:
            raise ValueError(f"source: there is no split {split!r}; there are {', '.join(PARTS)}")
        return max(self.lines // PARTS[name], 1)
