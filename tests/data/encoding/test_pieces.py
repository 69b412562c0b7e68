"""Cutting changes no token, and loses no word and no byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopkit.components.source import Document, Span
from loopkit.components.source.wikitext import WikiText
from loopkit.components.tokenizer import Tokenizer
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.components.tokenizer.characters import Characters
from loopkit.components.tokenizer.huggingface import HuggingFace
from loopkit.components.tokenizer.regex import Regex
from loopkit.data.encoding.pieces import TextPiece, example_pieces, stream_pieces

# blanks of every sort, words, letters with accents, signs
TEXTS = st.lists(st.text(st.sampled_from("ab1_é日 \t\n\x0b\x1c\x85\u2028.,²'"), max_size=60), max_size=6)
JOINS = st.sampled_from([None, "", "\n\n", " ### ", "x"])


def documents(texts: Sequence[str]) -> list[Document]:
    return [Document((Span(text),), str(number)) for number, text in enumerate(texts)]


def text_of(piece: TextPiece) -> str:
    return "".join(part.text for part in piece.parts)


def words_of(text: str) -> int:
    return len(text.split()) + text.count("\n") + (text != "" and not text.endswith("\n"))


@settings(max_examples=200, deadline=None)
@given(TEXTS, JOINS, st.integers(1, 9), st.booleans())
def test_pieces_are_the_joined_text(texts: list[str], join: str | None, size: int, separable: bool) -> None:
    with patch("loopkit.data.encoding.pieces.SIZE", size):
        pieces = list(stream_pieces(documents(texts), join, separable, "words_and_lines"))
    joined = (join or "").join(texts)
    assert "".join(map(text_of, pieces)) == joined
    assert sum(piece.bytes for piece in pieces) == len(joined.encode())
    assert sum(piece.words for piece in pieces) == sum(map(words_of, texts))


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": Bytes,
    "characters": Characters,
    "keep": lambda: Regex(min_count=1, unmatched="keep"),
    "drop": lambda: Regex(min_count=1, unmatched="drop"),
}


@settings(max_examples=200, deadline=None)
@given(TEXTS, JOINS, st.integers(1, 9), st.sampled_from(sorted(TOKENIZERS)))
def test_cutting_changes_no_token(texts: list[str], join: str | None, size: int, name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    joined = (join or "").join(texts)
    tokenizer.fit([joined, "a"])
    with patch("loopkit.data.encoding.pieces.SIZE", size):
        pieces = list(stream_pieces(documents(texts), join, tokenizer.separable, "words_and_lines"))
    (ids,) = tokenizer.encode([joined])
    parts = tokenizer.encode([text_of(piece) for piece in pieces])
    assert ids.tolist() == [number for part in parts for number in part.tolist()]


def test_words_up_to_each_cut_are_exact() -> None:
    text = "one two three\nfour five six seven\n" * 10
    with patch("loopkit.data.encoding.pieces.SIZE", 20):
        pieces = list(stream_pieces(documents([text]), None, True, "words_and_lines"))
    assert len(pieces) > 8
    for count in range(1, len(pieces)):
        read = "".join(map(text_of, pieces[:count]))
        assert sum(piece.words for piece in pieces[:count]) == len(read.split()) + read.count("\n")


def test_document_lines_override_the_text() -> None:
    (piece,) = stream_pieces([Document((Span("a b\n"),), "x", lines=4)], None, True, "words_and_lines")
    assert piece.words == 2 + 4


def test_examples_count_learned_parts() -> None:
    document = Document((Span("1 + 1 =", learn=False), Span(" é2\n")), "x")
    (piece,) = example_pieces([document], "words_and_lines")
    assert piece.parts == document.parts
    assert (piece.words, piece.bytes) == (2, 5)


@pytest.mark.parametrize("join", [None, "\n\n"])
def test_pieces_of_real_text(shared: Path, join: str | None) -> None:
    source = WikiText(variant="2-raw", path=shared / "data/wikitext-2-raw", join=join, drop_empty=True)
    lines = list(source.documents("validation"))[:400]
    joined = (join or "").join(document.text for document in lines)
    regex = Regex()
    regex.fit(document.text for document in lines)
    for tokenizer in (regex, HuggingFace(path=shared / "data/smollm2-tokenizer")):
        pieces = list(stream_pieces(lines, join, tokenizer.separable, "words_and_lines"))
        assert len(pieces) > 300
        ids, *parts = tokenizer.encode([joined, *map(text_of, pieces)])
        assert ids.tolist() == [number for part in parts for number in part.tolist()]
