"""An encoded split: what is in it, what is trained on, and what an evaluation of it scores."""

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
    """What is in a split.

    Args:
        tokens: Tokens.
        documents: Documents.
        characters: Characters of the text.
        bytes: UTF-8 bytes of it, joins included; of examples, what is learned.
        words: Words of the original text, as the source counts them; of examples, what is learned. ``None`` where the
            source has none.
        unknown_tokens: Tokens that are the unknown one.
        unknown: Characters in them.
        dropped: Characters in no token at all.
        fingerprint: Digest of the source's text.
        sha256: Digest of the tokens, and of which of them are learned.
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
        """Share of tokens that are unknown."""
        return self.unknown_tokens / self.tokens

    @property
    def lost_rate(self) -> float:
        """Share of characters that decoding would not give back."""
        return (self.unknown + self.dropped) / self.characters

    def to_json(self) -> dict[str, Any]:
        """As plain values, rates included."""
        return asdict(self) | {"unknown_rate": self.unknown_rate, "lost_rate": self.lost_rate}


@dataclass(frozen=True)
class Split:
    """One encoded split.

    Args:
        name: ``train``, ``validation``, ``test`` or what the source calls it.
        store: Its tokens.
        layout: ``stream`` is cut into windows, ``examples`` are padded.
        report: What is in it.
        pad: Token that fills rows.
        words: What its words are; ``None`` where it has none.
    """

    name: str
    store: TokenStore
    layout: str
    report: Report
    pad: int = 0
    words: Words | None = None

    def examples(self, length: int, stride: int | None = None) -> Examples:
        """Sequences to train on: windows every ``stride`` tokens (``length`` if not given), or padded examples."""
        if self.layout == "examples":
            return PaddedExamples(self.store, length, pad=self.pad)
        return Windows(self.store, length, length if stride is None else stride, pad=self.pad)

    def scoring(
        self,
        length: int,
        stride: int | None = None,
        protocol: Protocol = "non_overlapping",
        max_tokens: int | None = None,
    ) -> Scoring:
        """Sequences to evaluate on, with exact denominators.

        Args:
            length: Inputs of a window.
            stride: Tokens a window moves on; by default ``length``, or half of it under ``half_overlap``.
            protocol: ``non_overlapping`` scores each token once, ``half_overlap`` overlapping windows in full.
            max_tokens: Score a slice from the start of at most this many tokens, which ends where words and bytes are
                known exactly.

        Raises:
            ValueError: If the slice is too short, or the stride longer than the window.
        """
        if self.layout == "examples":
            return score_examples(self.store, self.name, length, max_tokens, self.pad, self.words)
        return score_stream(self.store, self.name, length, stride, protocol, max_tokens, self.pad, self.words)


@dataclass(frozen=True)
class Prepared:
    """Everything that a recipe's data section stands for."""

    tokenizer: Tokenizer
    splits: dict[str, Split]

    @property
    def report(self) -> dict[str, dict[str, Any]]:
        """What is in each split, as plain values."""
        return {name: split.report.to_json() for name, split in self.splits.items()}
