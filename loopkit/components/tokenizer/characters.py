"""A tokenizer of characters."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt

from loopkit.components.tokenizer import Lost
from loopkit.components.tokenizer.published import ROLES, tokenizer_files
from loopkit.components.tokenizer.vocabulary import SPECIAL, UNKNOWN, Counting
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

    def published(self) -> dict[str, Any]:
        vocabulary = {token: number for number, token in enumerate(self.tokens)}
        split = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": SPECIAL[UNKNOWN]}
        special = {role: (text, number) for number, (role, text) in enumerate(zip(ROLES, SPECIAL, strict=True))}
        return tokenizer_files(model, split, {"type": "Fuse"}, special)

    def options(self) -> dict[str, Any]:
        return {"max_size": self.max_size, "min_count": self.min_count, "fit_on": list(self.fit_on)}
