"""YAML as recipes are written in it: 1.2's values, positions, and everything else refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.recipe.node import Origin, RecipeError
from loopkit.recipe.read import LARGEST, plain_scalar, read_file, read_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e-5", 1e-5),
        ("6E-4", 6e-4),
        (".5", 0.5),
        ("1.", 1.0),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("-3", -3),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("True", True),
        ("NULL", None),
        ("~", None),
        ("", None),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("nUll", "nUll"),
        ("1-8", "1-8"),
        ("9" * 500, "9" * 500),
        (".inf", float("inf")),
    ],
)
def test_scalars_are_yaml_1_2(text: str, value: object) -> None:
    read = plain_scalar(text)
    assert read == value
    assert type(read) is type(value)


def test_quoted_scalars_stay_text() -> None:
    assert read_text("{a: '3', b: \"no\", c: 3}", Origin("test")).plain() == {"a": "3", "b": "no", "c": 3}


def test_values_know_their_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("# note\na: 1\nb:\n  c: [x, {d: 2}]\n")
    node = read_file(file)
    assert node.value["a"].origin.line == 2
    assert node.value["b"].value["c"].origin.line == 4
    assert node.value["b"].value["c"].value[1].value["d"].origin.text == "  c: [x, {d: 2}]"


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "'a' is written twice", 3),
        ("a: &x 1\nb: *x\n", "anchors and aliases", 1),
        ("a: !!python/object:os.system {}\n", "tags such as", 1),
        ("a: !custom 1\n", "tags such as", 1),
        ("a: 1\n\tb: 2\n", "is not YAML", 2),
        ("a: [1, 2\n", "is not YAML", 2),
        ("? [1, 2]\n: 3\n", "a key must be a plain word", 1),
        ("a: 1\n---\nb: 2\n", "one YAML document", 2),
        ("a: " + "[" * 60 + "]" * 60, "levels deep", 1),
        ("a: \x00\n", "is not allowed", 1),
        ("", "is empty", 0),
        ("# only a comment\n", "is empty", 0),
        ("- a\n- b\n", "is a list", 0),
        ("word\n", "is a str", 0),
    ],
)
def test_what_is_no_recipe_is_refused_with_its_line(tmp_path: Path, text: str, said: str, line: int) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError, match=said.replace("[", r"\[")) as caught:
        read_file(file)
    (problem,) = caught.value.problems
    assert problem.origin.line == line
    assert problem.origin.file == str(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such file"):
        read_file(tmp_path / "none.yaml")
    with pytest.raises(RecipeError, match="is a folder"):
        read_file(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(RecipeError, match="not UTF-8") as caught:
        read_file(latin)
    assert caught.value.problems[0].origin.line == 2
    long = tmp_path / "long.yaml"
    long.write_text("a: " + "x" * LARGEST)
    with pytest.raises(RecipeError, match="is longer than 1,000,000 bytes"):
        read_file(long)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_file(file).plain() == {"a": 1, "b": 2}


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(RecipeError, match="is longer than"):
        read_file(Path("/dev/zero"))
