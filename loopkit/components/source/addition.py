"""Sums of two numbers, answered with the last digit first."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

from annotated_types import Le
from pydantic import NonNegativeInt, PositiveInt

from loopkit.components.source import TEST, TRAIN, VALIDATION, Document, Source, Span, canonical_split
from loopkit.errors import UserError
from loopkit.registry import register

END = "§"
"""Ends an answer: a character like any other to the tokenizer."""

Pair = tuple[int, int]


@register("source", "addition", paper="arXiv:2605.26733", layout="examples", examples="train")
class AdditionSource(Source):
    """Problems such as ``1750+4733= 3846§``, of which the blank, the answer and its end are learned.

    Operands are drawn evenly from their range. No pair comes twice, and none that is held out is trained on, in either
    order of its operands. Its answers have no words, so there is no perplexity per word.

    Args:
        digits: Digits of an operand, the first of them not 0, unless ``low`` and ``high`` say otherwise.
        low: Smallest operand; null means the smallest with so many digits, 0 for one digit.
        high: Largest operand; null means the largest with so many digits.
        train: Problems to train on.
        validation: Problems held out for validation.
        test: Problems held out for test.
        reverse: Write the answer with its last digit first, in the order in which it is carried.
        seed: Seed of the draw; the recipe's own does not change the data.

    Paper: STARS, 100,000 problems of four digits, 5,076 of them its test file's; the reversed answer is that of Lee et
        al. (arXiv:2307.03381).
    """

    layout = "examples"

    def __init__(
        self,
        *,
        digits: Annotated[PositiveInt, Le(100)] = 4,
        low: NonNegativeInt | None = None,
        high: NonNegativeInt | None = None,
        train: PositiveInt = 94_924,
        validation: NonNegativeInt = 1_000,
        test: NonNegativeInt = 5_076,
        reverse: bool = True,
        seed: NonNegativeInt = 0,
    ) -> None:
        self.low = (10 ** (digits - 1) if digits > 1 else 0) if low is None else low
        self.high = 10**digits - 1 if high is None else high
        self.sizes = {TEST: test, VALIDATION: validation, TRAIN: train}
        self.reverse = reverse
        self.seed = seed
        if self.low > self.high:
            raise UserError(f"data.source: low {self.low} is more than high {self.high}")
        # a held-out pair takes its mirror image out of training
        held, there = test + validation, (self.high - self.low + 1) ** 2
        if train + 2 * held > there:
            raise UserError(
                f"data.source: operands from {self.low} to {self.high} make {there:,} problems, not the {train:,} for "
                f"training and twice the {held:,} held out that were asked for; lower those or widen the range"
            )

    def fingerprint(self, split: str) -> str:
        record = ["addition", canonical_split(split), self.low, self.high, self.sizes, self.reverse, self.seed]
        return hashlib.sha256(json.dumps(record).encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        if not self.sizes.get(split):
            raise UserError(f"data.source: there are no problems for {split}; set data.source.{split}")
        for number, (a, b) in enumerate(self._pairs(split)):
            yield Document((Span(f"{a}+{b}=", learn=False), Span(f" {self._answer(a + b)}{END}")), f"{split}:{number}")

    def _answer(self, total: int) -> str:
        return str(total)[::-1] if self.reverse else str(total)

    def _pairs(self, split: str) -> list[Pair]:
        held = self._draw("held out", self.sizes[TEST] + self.sizes[VALIDATION], frozenset())
        if split == TRAIN:
            return self._draw("train", self.sizes[TRAIN], frozenset(held) | {(b, a) for a, b in held})
        return held[: self.sizes[TEST]] if split == TEST else held[self.sizes[TEST] :]

    def _draw(self, what: str, count: int, without: frozenset[Pair]) -> list[Pair]:
        """Distinct pairs in random order. The numbers come from ``random``, which never changes for a text seed."""
        span = self.high - self.low + 1
        wanted, chance = min(count + len(without), span**2), random.Random(f"{self.seed} {what}")
        if span**2 <= sys.maxsize:
            numbers: Iterable[int] = chance.sample(range(span**2), wanted)
        else:  # more than a range can count; two alike among so many hardly ever come, and are drawn again
            found: dict[int, None] = {}
            while len(found) < wanted:
                found[chance.randrange(span**2)] = None
            numbers = found
        pairs = ((self.low + number // span, self.low + number % span) for number in numbers)
        return [pair for pair in pairs if pair not in without][:count]
