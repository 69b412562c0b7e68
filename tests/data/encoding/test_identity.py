"""The paths of data in a recipe, and the tokenizer of a resumed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.components.tokenizer.bytes import Bytes
from loopkit.components.tokenizer.regex import Regex
from loopkit.data import OtherData, located, run_tokenizer
from loopkit.recipe import component
from loopkit.recipe.format import DataConfig


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        ({"type": "text", "path": "a.txt"}, [("data", "source", "path")]),
        (
            {"type": "text", "files": {"train": "a.txt", "test": "b.txt"}},
            [("data", "source", "files", "train"), ("data", "source", "files", "test")],
        ),
        ({"type": "text", "dataset": "owner/name"}, []),
        ("python_docs", []),
    ],
)
def test_paths_are_locations(source: object, keys: list[tuple[str, ...]]) -> None:
    data = DataConfig(source=component("source", source), tokenizer=component("tokenizer", "bytes"))
    assert located(data) == keys


def test_fitted_tokenizer_is_loaded_from_the_run(tmp_path: Path) -> None:
    saved = Regex(min_count=1)
    saved.fit(["one two"])
    saved.save(tmp_path)
    assert run_tokenizer(component("tokenizer", "regex"), tmp_path).fingerprint() == saved.fingerprint()


def test_different_fixed_tokenizer_is_an_error(tmp_path: Path) -> None:
    Bytes().save(tmp_path)
    assert isinstance(run_tokenizer(component("tokenizer", "bytes"), tmp_path), Bytes)
    component("tokenizer", {"type": "numbers", "size": 9}).build().save(tmp_path / "numbers")
    with pytest.raises(OtherData, match=r"data\.tokenizer: numbers differs from the tokenizer of the run"):
        run_tokenizer(component("tokenizer", {"type": "numbers", "size": 10}), tmp_path / "numbers")
