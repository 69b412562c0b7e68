"""Documents cut and joined into the pieces that are encoded, with exact counts of words and bytes for each.

A stream is one text: documents with ``join`` between them. It is cut where that changes no token (between a letter or
digit and the blank after it), so that long corpora are encoded without being in memory, and every cut is a place where
an evaluation can end with words, bytes and tokens that belong to the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loopkit.components.source import Document, Span, Words, count_lines

SIZE = 256
"""Least number of characters in a piece: near enough for slices of an evaluation, far enough to be fast."""

_CUT = re.compile(r"[^\W_](?=[ \n])")


@dataclass(frozen=True)
class TextPiece:
    """Text that is encoded at once.

    Args:
        parts: The text; parts are encoded separately.
        words: Words of what is learned in it, as the source counts them; 0 where it has none.
        bytes: UTF-8 bytes of what is learned in it, joins included.
        key: The document that it ends in.
        group: That of the document, where a piece is one.
    """

    parts: tuple[Span, ...]
    words: int
    bytes: int
    key: str
    group: str | None = None


def stream_pieces(
    documents: Iterable[Document], join: str | None, separable: bool, words: Words | None
) -> Iterator[TextPiece]:
    """The pieces of a stream, whose texts concatenate to the documents with ``join`` between them.

    Args:
        documents: In order; their parts are taken together.
        join: Text between two documents; ``None`` for nothing.
        separable: Whether cuts inside a document are allowed, and pieces may span documents; else each is a piece.
        words: What the words are.
    """
    text, count, key = "", 0, ""  # waiting for a place to cut
    for number, document in enumerate(documents):
        whole = document.text
        text += join if number and join else ""
        start = 0
        for stop in _cuts(whole, SIZE - len(text)) if separable else ():
            yield _stream_piece(text + whole[start:stop], count + _count(whole[start:stop], words), document.key)
            text, count, start = "", 0, stop
        text += whole[start:]
        count += _count(whole[start:], words, last=True)
        if words == "words_and_lines" and document.lines is not None:
            count += document.lines - count_lines(whole)
        key = document.key
        if not separable:
            yield _stream_piece(text, count, key)
            text, count = "", 0
    if text or count:
        yield _stream_piece(text, count, key)


def example_pieces(documents: Iterable[Document], words: Words | None) -> Iterator[TextPiece]:
    """One piece for each document; words and bytes are those of what is learned."""
    for document in documents:
        in_place = any(part.target is not None for part in document.parts)
        learned = [part.target if in_place else part.text for part in document.parts if part.learn or in_place]
        texts = [text for text in learned if text is not None]
        count = sum(_count(text, words, last=True) for text in texts)
        size = sum(len(text.encode()) for text in texts)
        yield TextPiece(document.parts, count, size, document.key, document.group)


def _cuts(text: str, wanted: int) -> Iterator[int]:
    """Places to cut: the first one not before ``wanted`` characters, the others ``SIZE`` or more apart."""
    position = max(wanted, 0)
    while match := _CUT.search(text, position):
        yield match.end()
        position = match.end() + SIZE


def _count(text: str, words: Words | None, last: bool = False) -> int:
    """The words of a text; an unfinished line counts where the text is the ``last`` of its document."""
    if words is None:
        return 0
    lines = 0 if words == "words" else count_lines(text) if last else text.count("\n")
    return len(text.split()) + lines


def _stream_piece(text: str, words: int, key: str) -> TextPiece:
    return TextPiece((Span(text),), words, len(text.encode()), key)
