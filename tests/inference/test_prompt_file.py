"""Completions of a file of prompts: nothing is lost and nothing is generated twice, whenever it is interrupted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from loopkit.errors import UserError
from loopkit.inference.complete import Completed
from loopkit.inference.prompt_file import CompletionLog, read_prompts

PROMPTS = [f"prompt {number} é" for number in range(1000)]
SETTINGS = {"depth": 4, "temperature": 0.0}


def completed(index: int) -> Completed:
    return Completed(f"text {index}\n", index % 7 + 1, index % 2 == 0, 4.0)


def test_interrupted_files_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """20 random interruptions, each of which cuts the last line at a random byte."""
    file, draw, generated = tmp_path / "out.jsonl", random.Random(0), 0
    for _ in range(20):
        with CompletionLog(file, PROMPTS, SETTINGS) as log:
            for index in log.missing[: draw.randint(0, 80)]:
                log.add(index, completed(index))
                generated += 1
        content = file.read_bytes()
        start = content.rfind(b"\n", 0, max(len(content) - 1, 0)) + 1
        file.write_bytes(content[: draw.randint(start, len(content))] if content else b"")
    with CompletionLog(file, PROMPTS, SETTINGS) as log:
        for index in log.missing:
            log.add(index, completed(index))
            generated += 1
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert sorted(record["index"] for record in records) == list(range(1000))
    assert all(record["prompt"] == PROMPTS[record["index"]] for record in records)
    assert all(record["text"] == completed(record["index"]).text for record in records)
    assert generated <= 1000 + 20  # a cut line is generated again


def test_other_prompts_or_settings_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with CompletionLog(file, PROMPTS, SETTINGS) as log:
        log.add(3, completed(3))
    with pytest.raises(UserError, match=r"out.jsonl:1: a completion of another prompt; choose another file with --out"):
        CompletionLog(file, PROMPTS[1:], SETTINGS)
    with pytest.raises(UserError, match=r"out.jsonl:1: a completion of other settings"):
        CompletionLog(file, PROMPTS, SETTINGS | {"depth": 2})
    file.write_text('{"text": "notes"}\n')
    with pytest.raises(UserError, match=r"out.jsonl:1: not a completion"):
        CompletionLog(file, PROMPTS, SETTINGS)
    assert file.read_text() == '{"text": "notes"}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"one"\n{"prompt": ""}\n', r"prompts.jsonl:2: no prompt"),
        ('"one"\n\n[1]\n', r"prompts.jsonl:3: no prompt"),
        ("one\n", r"prompts.jsonl:1: not JSON"),
        ("\n", r"prompts.jsonl: there are no prompts"),
    ],
)
def test_invalid_prompt_files_are_reported(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(text)
    with pytest.raises(UserError, match=message):
        read_prompts(tmp_path / "prompts.jsonl")


def test_strings_and_objects_are_prompts(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('"one"\n\n{"prompt": "two", "id": 7}\n')
    assert read_prompts(tmp_path / "prompts.jsonl") == ["one", "two"]
