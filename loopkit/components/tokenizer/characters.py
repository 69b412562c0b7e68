"""A tokenizer of characters."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt

from loopkit.components.tokenizer import Lost
from loopkit.components.tokenizer.vocabulary import UNKNOWN, Counting
from loopkit.registry import register


@register("tokenizer", "characters")
class Characters(Counting):
    """The characters of the training text, most frequent first; others are unknown.

    Args:
        max_size: Maximum vocabulary size, including the four special tokens; null for no limit.
        min_count: Minimum number of occurrences; less frequent characters are unknown.
        fit_on: Splits to count the characters on.
    """

    separable = True

    def __init__(
        self,
        *,
        max_size: PositiveInt | None = None,
        min_count: PositiveInt = 1,
        fit_on: tuple[str, ...] = ("train",),
    ) -> None:
        super().__init__(fit_on, max_size, min_count)

    def cut(self, text: str) -> str:
        return text

    def lost(self, text: str) -> Lost:
        return Lost(unknown=sum(self._ids[character] == UNKNOWN for character in text))

    def options(self) -> dict[str, Any]:
        return {"max_size": self.max_size, "min_count": self.min_count, "fit_on": list(self.fit_on)}
