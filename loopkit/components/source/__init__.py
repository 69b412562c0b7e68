"""Where the text comes from: the contract of a source, and the documents that it yields. No torch."""

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
"""What a source may count as its words."""


class DataWarning(UserWarning):
    """Something about the data that a careful reader of the results should know."""


@dataclass(frozen=True)
class Span:
    """A stretch of a document.

    Args:
        text: The text.
        learn: Whether a model is trained to produce it; a prompt is read only.
        literal: Whether the text of a special token in it stays text: what users wrote cannot end their turn.
        target: What a model is to say in place of each token of ``text``, at the same positions; it must have as many
            tokens. In a document with targets nothing else is scored. ``None``: a learned part is scored as usual, each
            token by what comes before it.
    """

    text: str
    learn: bool = True
    literal: bool = False
    target: str | None = None


@dataclass(frozen=True)
class Document:
    """One text, and what it counts for when a perplexity per word is reported.

    Args:
        parts: The text in order; a stream source has one part.
        key: Names the document in messages, such as ``train:17``.
        lines: Ends of line that the document stands for in its file, including those of empty lines left out beside
            it; ``None`` counts the lines of the text.
        group: What figures are reported for, beside those of all examples, such as a difficulty; of an ``examples``
            source.
    """

    parts: tuple[Span, ...]
    key: str
    lines: int | None = None
    group: str | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(part.text for part in self.parts)


class Source(ABC):
    """A supply of documents in named splits.

    ``layout`` says what becomes of them: a ``stream`` is joined to one text and cut into windows, ``examples`` are
    padded one by one. A source reads nothing when it is constructed, so that checking a recipe has no side effects.

    Args:
        layout: ``stream`` or ``examples``; the trait of the same name repeats it.
        join: Text between the documents of a stream; ``None`` puts nothing between them.
        words: What the words of its text are, by which a perplexity per word divides: ``words`` are runs of characters
            between blanks, ``words_and_lines`` counts ends of line too, as is usual for WikiText. ``None``: the text
            has no words, and there is no such figure.
    """

    layout: ClassVar[Literal["stream", "examples"]] = "stream"
    words: ClassVar[Words | None] = None
    join: str | None = None

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """Name the content of a split: equal exactly where ``documents`` yields the same texts.

        Cheap next to encoding, and asked on every start. ``join`` is not part of it.

        Raises:
            ValueError: If the data is missing, empty or of the wrong form; the message names cause and remedy.
        """

    @abstractmethod
    def documents(self, split: str) -> Iterator[Document]:
        """The documents of a split, in an order that never changes, without holding them all in memory.

        Raises:
            ValueError: If the data is missing, empty or of the wrong form; the message names cause and remedy.
        """


def canonical_split(name: str) -> str:
    """The name that loopkit uses for a split: ``valid``, ``val`` and ``dev`` are ``validation``."""
    return _ALIASES.get(name, name)


def count_lines(text: str) -> int:
    """Ends of line of a text, an unfinished last line included."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))
