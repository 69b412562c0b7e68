"""Padded examples: loss only on answers, and at least one learned token per example."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from loopkit.data.padded import PaddedExamples
from loopkit.data.rows import IGNORE
from tests.data.toys import examples_of


def text(numbers: object) -> str:
    return bytes(n for n in numbers if n >= 0).decode()  # type: ignore[attr-defined]


def test_only_the_answer_is_learned(tmp_path: Path) -> None:
    examples = PaddedExamples(examples_of(tmp_path, ["1+1=2", "10+1=11"]), 16, pad=256)
    row = examples.row(1)
    assert text(row.tokens) == "10+1=1"
    assert row.labels.tolist() == [IGNORE] * 4 + [ord("1"), ord("1")]
    batch = examples.batch([0, 1], [70, 71])
    assert batch.tokens[0].tolist() == [*b"1+1=", 256, 256]
    assert batch.labels[0].tolist() == [IGNORE] * 3 + [ord("2"), IGNORE, IGNORE]
    assert batch.positions[0].tolist() == [0, 1, 2, 3, 2**30, 2**30]
    assert batch.sample.tolist() == [70, 71]
    assert examples.scored([0, 1]) == batch.num_scored == 3
    assert examples.truncated == 0


def test_long_prompt_loses_its_start(tmp_path: Path) -> None:
    examples = PaddedExamples(examples_of(tmp_path, ["123456789=ab"]), 4)
    assert text(examples.row(0).tokens) + "b" == "89=ab"
    assert text(examples.row(0).labels) == "ab"
    assert examples.truncated == 1


def test_long_answer_loses_its_end(tmp_path: Path) -> None:
    examples = PaddedExamples(examples_of(tmp_path, ["12=abcdefgh"]), 4)
    assert text(examples.row(0).tokens) == "=abc"
    assert text(examples.row(0).labels) == "abcd"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 12), st.integers(1, 12), st.integers(1, 12))
def test_truncation_keeps_part_of_the_answer(tmp_path_factory: object, prompt: int, answer: int, length: int) -> None:
    folder = tmp_path_factory.mktemp("store")  # type: ignore[attr-defined]
    examples = PaddedExamples(examples_of(folder, ["p" * prompt + "=" + "a" * answer]), length)
    row = examples.row(0)
    assert len(row.tokens) == len(row.labels) == min(length, prompt + answer)
    assert text(row.labels) == "a" * min(answer, length)
    assert examples.scored([0]) == min(answer, length)
