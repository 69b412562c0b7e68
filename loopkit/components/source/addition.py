"""Addition problems, with the digits of the answer reversed."""

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
"""Ends an answer; an ordinary character for the tokenizer."""

Pair = tuple[int, int]


@register("source", "addition", paper="arXiv:2605.26733", layout="examples", examples="train")
class AdditionSource(Source):
    """Problems such as ``1750+4733= 3846§``; the space, the answer and its end are learned.

    Operands are uniform over their range. Pairs are distinct, and no held-out pair is in train, in either order of its
    operands. Perplexity per word is undefined.

    Args:
        digits: Number of digits of an operand, the first not 0, unless ``low`` and ``high`` are set.
        low: Smallest operand; null means the smallest number with ``digits`` digits, 0 for one digit.
        high: Largest operand; null means the largest number with ``digits`` digits.
        train: Number of problems to train on.
        validation: Number of problems held out for validation.
        test: Number of problems held out for test.
        reverse: Write the last digit of the answer first, so that carries propagate in the order of generation.
        seed: Seed of the problems; the recipe's seed does not change the data.

    Paper: STARS uses 100,000 problems of four digits, 5,076 of them for test; reversed answers are from Lee et al.
        (arXiv:2307.03381).
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
            raise UserError(f"data.source: low ({self.low}) is greater than high ({self.high}); swap them")
        # the mirror image of a held-out pair is excluded from training
        held_out, available = test + validation, (self.high - self.low + 1) ** 2
        if train + 2 * held_out > available:
            raise UserError(
                f"data.source: operands from {self.low} to {self.high} make {available:,} problems, fewer than "
                f"{train:,} for training and twice the {held_out:,} held out; lower those or widen the range"
            )

    def fingerprint(self, split: str) -> str:
        record = ["addition", canonical_split(split), self.low, self.high, self.sizes, self.reverse, self.seed]
        return hashlib.sha256(json.dumps(record).encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        if not self.sizes.get(split):
            raise UserError(f"data.source: the {split} split is empty; set data.source.{split}")
        for number, (a, b) in enumerate(self._pairs(split)):
            yield Document((Span(f"{a}+{b}=", learn=False), Span(f" {self._answer(a + b)}{END}")), f"{split}:{number}")

    def _answer(self, total: int) -> str:
        return str(total)[::-1] if self.reverse else str(total)

    def _pairs(self, split: str) -> list[Pair]:
        held_out = self._draw("held out", self.sizes[TEST] + self.sizes[VALIDATION], frozenset())
        if split == TRAIN:
            return self._draw("train", self.sizes[TRAIN], frozenset(held_out) | {(b, a) for a, b in held_out})
        return held_out[: self.sizes[TEST]] if split == TEST else held_out[self.sizes[TEST] :]

    def _draw(self, purpose: str, count: int, exclude: frozenset[Pair]) -> list[Pair]:
        """Draw distinct pairs in random order; ``random`` guarantees the same sequence for a text seed."""
        span = self.high - self.low + 1
        num_draws, generator = min(count + len(exclude), span**2), random.Random(f"{self.seed} {purpose}")
        if span**2 <= sys.maxsize:
            numbers: Iterable[int] = generator.sample(range(span**2), num_draws)
        else:  # too large for ``sample``; duplicates are rare and drawn again
            unique: dict[int, None] = {}
            while len(unique) < num_draws:
                unique[generator.randrange(span**2)] = None
            numbers = unique
        pairs = ((self.low + number // span, self.low + number % span) for number in numbers)
        return [pair for pair in pairs if pair not in exclude][:count]
