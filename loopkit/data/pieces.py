"""Documents cut and joined into the pieces that are encoded, with exact counts of words and bytes for each.

A stream is one text: documents with ``join`` between them. It is cut where that changes no token (between a letter or
digit and the blank after it), so that long corpora are encoded without being in memory, and every cut is a place where
an evaluation can end with words, bytes and tokens that belong to the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loopkit.components.source import Document, Part, count_lines

SIZE = 256
"""Least number of characters in a piece: near enough for slices of an evaluation, far enough to be fast."""

_CUT = re.compile(r"[^\W_](?=[ \n])")


@dataclass(frozen=True)
class Piece:
    """Text that is encoded at once.

    Args:
        parts: The text; parts are encoded separately.
        words: Whitespace-separated words and ends of line of what is learned in it.
        bytes: UTF-8 bytes of what is learned in it, joins included.
        key: The document that it ends in.
    """

    parts: tuple[Part, ...]
    words: int
    bytes: int
    key: str


def stream_pieces(documents: Iterable[Document], join: str | None, separable: bool) -> Iterator[Piece]:
    """The pieces of a stream, whose texts concatenate to the documents with ``join`` between them.

    Args:
        documents: In order; their parts are taken together.
        join: Text between two documents; ``None`` for nothing.
        separable: Whether cuts inside a document are allowed, and pieces may span documents; else each is a piece.
    """
    text, words, key = "", 0, ""  # waiting for a place to cut
    for number, document in enumerate(documents):
        whole = document.text
        text += join if number and join else ""
        start = 0
        for stop in _cuts(whole, SIZE - len(text)) if separable else ():
            yield _stream_piece(text + whole[start:stop], words + _words(whole[start:stop]), document.key)
            text, words, start = "", 0, stop
        extra = 0 if document.lines is None else document.lines - count_lines(whole)
        text += whole[start:]
        words += _words(whole[start:], last=True) + extra
        key = document.key
        if not separable:
            yield _stream_piece(text, words, key)
            text, words = "", 0
    if text or words:
        yield _stream_piece(text, words, key)


def example_pieces(documents: Iterable[Document]) -> Iterator[Piece]:
    """One piece for each document; words and bytes are those of the parts that are learned."""
    for document in documents:
        learned = [part.text for part in document.parts if part.learn]
        words = sum(_words(text, last=True) for text in learned)
        yield Piece(document.parts, words, sum(len(text.encode()) for text in learned), document.key)


def _cuts(text: str, wanted: int) -> Iterator[int]:
    """Places to cut: the first one not before ``wanted`` characters, the others ``SIZE`` or more apart."""
    position = max(wanted, 0)
    while match := _CUT.search(text, position):
        yield match.end()
        position = match.end() + SIZE


def _words(text: str, last: bool = False) -> int:
    """Words and ends of line; an unfinished line counts where the text is the ``last`` of its document."""
    return len(text.split()) + (count_lines(text) if last else text.count("\n"))


def _stream_piece(text: str, words: int, key: str) -> Piece:
    return Piece((Part(text),), words, len(text.encode()), key)
