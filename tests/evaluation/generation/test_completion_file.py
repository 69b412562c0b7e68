from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.components.task import Completion
from loopkit.evaluation.generation.completion_file import CompletionFile, completion_digest

TEXT = Completion('a "b"\n\u2028é', 3, True)


def test_completion_is_stored_by_its_whole_key(tmp_path: Path) -> None:
    path = tmp_path / "eval" / "texts.jsonl"
    CompletionFile(path).add("math", "7", 2, "d", TEXT)
    again = CompletionFile(path)
    assert again.get("math", "7", 2, "d") == TEXT
    for other in (("svamp", "7", 2, "d"), ("math", "8", 2, "d"), ("math", "7", 3, "d"), ("math", "7", 2, "e")):
        assert again.get(*other) is None
    assert len(again) == 1
    assert len(path.read_bytes().splitlines()) == 1


def test_incomplete_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    file = CompletionFile(path)
    file.add("math", "1", 1, "d", TEXT)
    file.add("math", "2", 1, "d", TEXT)
    path.write_bytes(path.read_bytes()[:-9])
    half = CompletionFile(path)
    assert half.get("math", "1", 1, "d") == TEXT
    assert half.get("math", "2", 1, "d") is None
    half.add("math", "2", 1, "d", TEXT)
    assert len(CompletionFile(path)) == 2
    path.write_bytes(b'{"task"')
    assert len(CompletionFile(path)) == 0
    assert path.read_bytes() == b""


@pytest.mark.parametrize("line", ["{", "[]", '{"task": "math"}', '"text"'])
def test_damaged_line_before_the_last_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "texts.jsonl"
    CompletionFile(path).add("math", "1", 1, "d", TEXT)
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    with pytest.raises(ValueError, match=r"texts.jsonl:2: this line is not a completion"):
        CompletionFile(path)


def test_completions_without_a_path_stay_in_memory() -> None:
    file = CompletionFile(None)
    file.add("math", "1", 1, "d", TEXT)
    assert file.get("math", "1", 1, "d") == TEXT


def test_digest_depends_on_every_setting() -> None:
    settings = {"prompt": "p", "max_tokens": 3, "stop": ("a",)}
    digests = {completion_digest(settings | change) for change in ({}, {"prompt": "q"}, {"stop": ()}, {"more": 1})}
    assert len(digests) == 4
    assert completion_digest(json.loads(json.dumps(settings))) == completion_digest(settings)
