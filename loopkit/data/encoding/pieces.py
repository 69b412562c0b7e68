"""The pieces of text that are encoded, with exact counts of words and bytes.

A stream is one text: documents with ``join`` between them. It is cut only where cutting changes no token: between a
letter or digit and the whitespace after it. Pieces bound the memory of encoding, and an evaluation may end after any
piece with exact counts of tokens, words and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loopkit.components.source import Document, Span, Words, count_lines

SIZE = 256
"""Minimum number of characters in a piece: small enough to end an evaluation near its limit, large enough for speed."""

_CUT = re.compile(r"[^\W_](?=[ \n])")


@dataclass(frozen=True)
class TextPiece:
    """Text that is encoded at once, as one example or as a part of a stream.

    Args:
        parts: The text; parts are encoded separately.
        words: Words of its learned parts, as the source counts them; 0 if the source has none.
        bytes: UTF-8 bytes of its learned parts, joins included.
        key: Key of the document in which it ends.
        group: Group of the document; only of an example.
    """

    parts: tuple[Span, ...]
    words: int
    bytes: int
    key: str
    group: str | None = None


def stream_pieces(
    documents: Iterable[Document], join: str | None, separable: bool, words: Words | None
) -> Iterator[TextPiece]:
    """Yield the pieces of a stream; together they are the documents with ``join`` between them.

    Args:
        documents: In order; the parts of a document are joined.
        join: Text between two documents; ``None`` for nothing.
        separable: Whether pieces may end inside a document and span documents; else each document is a piece.
        words: Definition of a word.
    """
    text, num_words, key = "", 0, ""  # of the piece that is not yet complete
    for number, document in enumerate(documents):
        content = document.text
        text += join if number and join else ""
        start = 0
        for stop in _cuts(content, SIZE - len(text)) if separable else ():
            part = content[start:stop]
            yield _stream_piece(text + part, num_words + _count_words(part, words), document.key)
            text, num_words, start = "", 0, stop
        text += content[start:]
        num_words += _count_words(content[start:], words, last=True)
        if words == "words_and_lines" and document.lines is not None:
            num_words += document.lines - count_lines(content)
        key = document.key
        if not separable:
            yield _stream_piece(text, num_words, key)
            text, num_words = "", 0
    if text or num_words:
        yield _stream_piece(text, num_words, key)


def example_pieces(documents: Iterable[Document], words: Words | None) -> Iterator[TextPiece]:
    """Yield one piece for each document; its words and bytes are those of the learned parts."""
    for document in documents:
        in_place = any(part.target is not None for part in document.parts)
        learned = [part.target if in_place else part.text for part in document.parts if part.learn or in_place]
        texts = [text for text in learned if text is not None]
        num_words = sum(_count_words(text, words, last=True) for text in texts)
        num_bytes = sum(len(text.encode()) for text in texts)
        yield TextPiece(document.parts, num_words, num_bytes, document.key, document.group)


def _cuts(text: str, minimum: int) -> Iterator[int]:
    """Yield cut positions: the first after at least ``minimum`` characters, the others at least ``SIZE`` apart."""
    position = max(minimum, 0)
    while match := _CUT.search(text, position):
        yield match.end()
        position = match.end() + SIZE


def _count_words(text: str, words: Words | None, last: bool = False) -> int:
    """Count the words of a text; an unfinished line counts if the text is the ``last`` of its document."""
    if words is None:
        return 0
    lines = 0 if words == "words" else count_lines(text) if last else text.count("\n")
    return len(text.split()) + lines


def _stream_piece(text: str, words: int, key: str) -> TextPiece:
    return TextPiece((Span(text),), words, len(text.encode()), key)
