"""A tokenizer of the matches of a regular expression: words, runs of whitespace and punctuation."""

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
    r"""Every match of a pattern is a token; the vocabulary is the most frequent tokens of the training text.

    With the default pattern each run of whitespace is a token, so about every second token is easy to predict: do not
    compare perplexity per token with perplexity per word.

    Args:
        pattern: Python regular expression without capturing groups.
        max_size: Maximum vocabulary size, including the four special tokens; null for no limit.
        min_count: Minimum number of occurrences; less frequent tokens are unknown.
        fit_on: Splits to count the tokens on.
        fit_joins: Count on the text as it is encoded, with the joins between documents; false counts each document
            separately, so that a join that occurs nowhere else is unknown.
        unmatched: How to handle characters that the pattern does not match, such as letters with accents: keep makes
            each a token, drop removes it.

    Raises:
        UserError: If the pattern is not a regular expression, captures groups, or matches the empty string.

    Paper: counts the vocabulary on train and validation, document by document, and drops unmatched characters; our
    defaults differ in all three.
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
        unknown = sum(len(token) for token in tokens if self._ids[token] == UNKNOWN)
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
        finder, finder_of_all = re.compile(pattern), re.compile(rf"(?:{pattern})|[\s\S]")
    except re.error as error:
        raise UserError(f"{option} is not a regular expression ({error}); correct it") from error
    if finder.groups:
        raise UserError(f"{option} captures groups; write (?:...) instead of (...)")
    if any("" in finder.findall(text) for text in ("", "a b", "\n.")):
        raise UserError(f"{option} matches the empty string; make every alternative match a character")
    return finder_of_all if unmatched == "keep" else finder
