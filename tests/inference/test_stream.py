"""Streamed text: the pieces add up to the completion, and none is withdrawn."""

from __future__ import annotations

import pytest

from loopkit.components.tokenizer.bytes import Bytes
from loopkit.inference.stream import Stream


def pieces(text: str, stop: list[str], end: str) -> list[str]:
    """Return the streamed pieces of a text that arrives byte by byte."""
    shown: list[str] = []
    tokens = [int(i) for i in Bytes().encode([text])[0]]
    stream = Stream(Bytes(), stop, shown.append)
    for count in range(1, len(tokens) + 1):
        stream.update(tokens[:count])
    stream.end(end)
    return shown


def test_multibyte_characters_are_not_split() -> None:
    assert pieces("aé€", [], "aé€") == ["a", "é", "€", "\n"]


@pytest.mark.parametrize(
    ("text", "stop", "end"),
    [("ab<end>cd", ["<end>"], "ab"), ("ab<e", ["<end>"], "ab<e"), ("a<<end>", ["<end>"], "a<"), ("xaab", ["aab"], "x")],
)
def test_stop_strings_are_not_shown(text: str, stop: list[str], end: str) -> None:
    shown = pieces(text, stop, end)
    assert "".join(shown) == end + "\n"
    assert len(shown) > 2 or len(end) == 1, "it appears while it is generated"
