"""Words, runs of whitespace and signs, found by a regular expression."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import PositiveInt

from loopkit.components.tokenizer import Lost
from loopkit.components.tokenizer.vocabulary import UNKNOWN, Counting
from loopkit.errors import UserError
from loopkit.registry import register

PATTERN = r"\s+|[A-Za-z0-9_]+|[^\w\s]"


@register("tokenizer", "regex", paper="arXiv:2606.24898", before={"fit_joins": False})
class Regex(Counting):
    r"""Every match of a pattern is a token; the most frequent ones of the training text have a number.

    With the default pattern each run of whitespace is one token, so about every second token is easy to predict: never
    compare its perplexity per token with one per word.

    Args:
        pattern: Python regular expression without groups that capture.
        max_size: Largest vocabulary, with the four special tokens; null for no limit.
        min_count: Tokens that occur less often in the fitted text become unknown.
        fit_on: Splits that the vocabulary is counted on.
        fit_joins: Count on the text that is encoded, with what the source puts between documents; false counts each
            document alone, so that a join that occurs nowhere else is unknown.
        unmatched: What becomes of characters that the pattern does not match, such as letters with accents: keep makes
            each a token of its own, drop makes it vanish.

    Raises:
        ValueError: If the pattern is no regular expression, captures groups, or matches the empty text.

    Paper: there the vocabulary is counted on train and validation, document by document, and unmatched characters
    vanish; our defaults do none of these.
    """

    def __init__(
        self,
        *,
        pattern: str = r"\s+|[A-Za-z0-9_]+|[^\w\s]",
        max_size: PositiveInt | None = 20000,
        min_count: PositiveInt = 2,
        fit_on: tuple[str, ...] = ("train",),
        fit_joins: bool = True,
        unmatched: Literal["keep", "drop"] = "keep",
    ) -> None:
        super().__init__(fit_on, max_size, min_count)
        self.fit_joins = fit_joins
        self.pattern = pattern
        self.unmatched = unmatched
        self.separable = pattern == PATTERN
        self._finder = _compile(pattern, unmatched)

    def cut(self, text: str) -> list[str]:
        return self._finder.findall(text)

    def lost(self, text: str) -> Lost:
        tokens = self.cut(text)
        unknown = sum(len(token) for token in tokens if self._numbers[token] == UNKNOWN)
        return Lost(unknown, len(text) - sum(map(len, tokens)))

    def options(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "max_size": self.max_size,
            "min_count": self.min_count,
            "fit_on": list(self.fit_on),
            "unmatched": self.unmatched,
        }


def _compile(pattern: str, unmatched: str) -> re.Pattern[str]:
    option = f"data.tokenizer.pattern: {pattern!r}"
    try:
        alone, catching = re.compile(pattern), re.compile(rf"(?:{pattern})|[\s\S]")
    except re.error as error:
        raise UserError(f"{option} is no regular expression: {error}") from error
    if alone.groups:
        raise UserError(f"{option} captures groups; write (?:...) in place of (...)")
    if any("" in alone.findall(probe) for probe in ("", "a b", "\n.")):
        raise UserError(f"{option} matches the empty text; let every alternative take a character")
    return catching if unmatched == "keep" else alone
