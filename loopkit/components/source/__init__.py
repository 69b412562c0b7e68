"""The contract of a data source, and the documents that it yields. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

TRAIN, VALIDATION, TEST = "train", "validation", "test"

_ALIASES = {"valid": VALIDATION, "val": VALIDATION, "dev": VALIDATION}

Words = Literal["words", "words_and_lines"]
WORDS: dict[Words, str] = {
    "words": "runs of characters between blanks",
    "words_and_lines": "runs of characters between blanks, and one end of line for each line",
}
"""Definitions of a word."""


class DataWarning(UserWarning):
    """A property of the data that affects how results are read."""


@dataclass(frozen=True)
class Span:
    """A part of a document.

    Args:
        text: The text.
        learn: Whether a model is trained to produce it; false for a prompt.
        literal: Whether special tokens in it are encoded as plain text, so that user text cannot end its turn.
        target: Labels for the tokens of ``text``, at the same positions; must have the same number of tokens. In a
            document with targets nothing else is scored. ``None``: next-token prediction.
    """

    text: str
    learn: bool = True
    literal: bool = False
    target: str | None = None


@dataclass(frozen=True)
class Document:
    """A text in parts.

    Args:
        parts: The text in order; a stream source has one part.
        key: Name of the document in messages, such as ``train:17``.
        lines: Ends of line for perplexity per word, including those of dropped empty lines around the document;
            ``None`` counts the lines of the text.
        group: Group whose figures are reported separately, such as a difficulty; only of an ``examples`` source.
    """

    parts: tuple[Span, ...]
    key: str
    lines: int | None = None
    group: str | None = None

    @property
    def text(self) -> str:
        """All parts joined."""
        return "".join(part.text for part in self.parts)


class Source(ABC):
    """Documents in named splits.

    The constructor reads nothing, so that validating a recipe has no side effects.

    Args:
        layout: A ``stream`` is joined to one text and cut into windows; ``examples`` are padded one by one. The trait
            of the same name repeats it.
        join: Text between the documents of a stream; ``None`` for nothing.
        words: Definition of a word for perplexity per word: ``words`` are separated by whitespace;
            ``words_and_lines`` also counts ends of line, as is usual for WikiText. ``None``: perplexity per word is
            undefined.
    """

    layout: ClassVar[Literal["stream", "examples"]] = "stream"
    words: ClassVar[Words | None] = None
    join: str | None = None

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """Compute a digest of a split: equal if and only if ``documents`` yields the same documents.

        Called on every start, so it must be cheap compared with encoding. It does not depend on ``join``.

        Raises:
            UserError: If the data is missing, empty or in the wrong format.
        """

    @abstractmethod
    def documents(self, split: str) -> Iterator[Document]:
        """Yield the documents of a split in a fixed order, without holding all of them in memory.

        Raises:
            UserError: If the data is missing, empty or in the wrong format.
        """


def canonical_split(name: str) -> str:
    """Return the canonical name of a split: ``validation`` for ``valid``, ``val`` and ``dev``."""
    return _ALIASES.get(name, name)


def count_lines(text: str) -> int:
    """Count the lines of a text, including an unfinished last line."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))
