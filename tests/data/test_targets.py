"""Documents whose tokens have targets of their own, at the same places, and documents in groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.source import Document, Source, Span
from loopkit.components.tokenizer.characters import Characters
from loopkit.components.tokenizer.regex import Regex
from loopkit.data import Prepared, prepare
from loopkit.data.rows import IGNORE
from loopkit.errors import UserError
from tests.data.toys import Squares, ToyData, ToySpec


def prepared(folder: Path, source: Source | None = None, tokenizer: Any = None) -> Prepared:
    source = Squares() if source is None else source
    data: Any = ToyData(ToySpec(source), ToySpec(Characters() if tokenizer is None else tokenizer))
    return prepare(data, cache=folder)


def test_labels_are_at_their_tokens(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    three = data.tokenizer.encode(["3"])[0].item()  # learned from the targets
    examples = data.splits["train"].examples(5)
    row = examples.row(0)
    assert data.tokenizer.decode(row.tokens.tolist()) == "1.|.2"
    assert row.labels.tolist() == [IGNORE, three, IGNORE, three, IGNORE]
    assert examples.row(1).labels.tolist() == [three, three, IGNORE, IGNORE, IGNORE]
    batch = examples.batch([0, 1])
    assert batch.labels.shape == batch.tokens.shape == (2, 5)
    assert examples.scored([0, 1]) == batch.num_scored == 4


def test_targets_are_scored_once_in_groups(tmp_path: Path) -> None:
    scoring = prepared(tmp_path).splits["train"].scoring(8)
    assert (scoring.tokens_scored, scoring.bytes, scoring.words) == (4, 4, None)
    assert scoring.groups == ["2 empty", "2 empty"]
    assert prepared(tmp_path).splits["train"].scoring(8, max_tokens=5).groups == ["2 empty"]


def test_examples_with_targets_are_not_truncated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.length: 4 is less than 5, the tokens of the longest example"):
        prepared(tmp_path).splits["train"].examples(4)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([Document((Span("ab", target="a"),), "x")], r"document x: 'ab' has 2 tokens and its target 'a' has 1"),
        ([Document((Span("", target=""), Span("a")), "x")], "document x has nothing to learn"),
        (
            [Document((Span("a", target="b"),), "x"), Document((Span("a"), Span("b")), "y")],
            "document y has no targets, unlike earlier documents",
        ),
        (
            [Document((Span("a"), Span("b")), "x"), Document((Span("a", target="b"),), "y")],
            "document y has targets, unlike earlier documents",
        ),
    ],
)
def test_mismatched_targets_are_errors(tmp_path: Path, documents: list[Document], message: str) -> None:
    class Wrong(Squares):
        def documents(self, split: str) -> Iterator[Document]:
            return iter(documents)

    with pytest.raises(UserError, match=message):
        prepared(tmp_path, Wrong())


def test_vocabulary_covers_targets(tmp_path: Path) -> None:
    data = prepared(tmp_path, Squares("word"), Regex(min_count=1))
    assert data.splits["train"].examples(5).scored([0, 1]) == 4
    assert "word" in data.tokenizer.tokens  # type: ignore[attr-defined]
