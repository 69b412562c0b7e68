"""Encoded splits: their contents, their training examples, and what an evaluation scores."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from loopkit.components.source import Words
from loopkit.components.tokenizer import Tokenizer
from loopkit.data.encoding.store import TokenStore
from loopkit.data.padded import PaddedExamples
from loopkit.data.rows import Examples
from loopkit.data.scoring import Protocol, Scoring, score_examples, score_stream
from loopkit.data.windows import Windows


@dataclass(frozen=True)
class Report:
    """Counts and digests of a split.

    Args:
        tokens: Number of tokens.
        documents: Number of documents.
        characters: Characters of the text.
        bytes: UTF-8 bytes of the text, joins included; of examples, only the learned parts.
        words: Words of the original text, as the source counts them; of examples, only the learned parts. ``None`` if
            the source has none.
        unknown_tokens: Number of unknown tokens.
        unknown: Characters in unknown tokens.
        dropped: Characters that are in no token.
        fingerprint: Digest of the source's text.
        sha256: Digest of the tokens and of the flags of learned ones.
    """

    tokens: int
    documents: int
    characters: int
    bytes: int
    words: int | None
    unknown_tokens: int
    unknown: int
    dropped: int
    fingerprint: str
    sha256: str = ""

    @property
    def unknown_rate(self) -> float:
        """Share of unknown tokens."""
        return self.unknown_tokens / self.tokens

    @property
    def lost_rate(self) -> float:
        """Share of characters that decoding does not restore."""
        return (self.unknown + self.dropped) / self.characters

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with the rates."""
        return asdict(self) | {"unknown_rate": self.unknown_rate, "lost_rate": self.lost_rate}


@dataclass(frozen=True)
class Split:
    """One encoded split.

    Args:
        name: ``train``, ``validation``, ``test`` or what the source calls it.
        store: The tokens.
        layout: ``stream`` is cut into windows, ``examples`` are padded.
        report: Counts and digests.
        pad: Token that pads rows.
        words: Definition of a word; ``None`` if the source has none.
    """

    name: str
    store: TokenStore
    layout: str
    report: Report
    pad: int = 0
    words: Words | None = None

    def examples(self, length: int, stride: int | None = None) -> Examples:
        """Return the training sequences: windows every ``stride`` tokens (default ``length``), or padded examples."""
        if self.layout == "examples":
            return PaddedExamples(self.store, length, pad=self.pad)
        return Windows(self.store, length, length if stride is None else stride, pad=self.pad)

    def scoring(
        self, length: int, stride: int | None = None, protocol: Protocol = "once", max_tokens: int | None = None
    ) -> Scoring:
        """Return the sequences to evaluate, with exact denominators.

        Args:
            length: Number of inputs in a window.
            stride: Tokens from the start of one window to the next; by default ``length``, or half of it under
                ``paper_a``.
            protocol: ``once`` scores each token once, ``paper_a`` overlapping windows in full.
            max_tokens: Score a prefix of at most this many tokens, which ends where words and bytes are known exactly.

        Raises:
            UserError: If the prefix is too short, or the stride is longer than the window.
        """
        if self.layout == "examples":
            return score_examples(self.store, self.name, length, max_tokens, self.pad, self.words)
        return score_stream(self.store, self.name, length, stride, protocol, max_tokens, self.pad, self.words)


@dataclass(frozen=True)
class Prepared:
    """The tokenizer and encoded splits of a recipe."""

    tokenizer: Tokenizer
    splits: dict[str, Split]

    @property
    def report(self) -> dict[str, dict[str, Any]]:
        """Counts and digests of each split, as plain values."""
        return {name: split.report.to_json() for name, split in self.splits.items()}
