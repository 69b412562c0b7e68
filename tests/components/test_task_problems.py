"""Problems from files of the forms that the field uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.components.source import hub
from loopkit.components.task.problems import COLLECTIONS, MathProblem, read_problems
from loopkit.errors import UserError

ASDIV = """<?xml version="1.0" encoding="UTF-8"?>
<Machine-Reading-Corpus-File>
  <ProblemSet>
    <Problem ID="one" Grade="1" Source="here">
      <Body>Ann has 3 apples and finds 4 apples.</Body>
      <Question>How many apples has she?</Question>
      <Solution-Type>Addition</Solution-Type>
      <Answer>7 (apples)</Answer>
      <Formula>3+4=7</Formula>
    </Problem>
    <Problem ID="two" Grade="2" Source="here">
      <Body>Of 7 children three are boys</Body>
      <Question>How many are boys, and how many girls?</Question>
      <Answer>3 (boys); 4 (girls)</Answer>
    </Problem>
  </ProblemSet>
</Machine-Reading-Corpus-File>
"""


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read(name: str, path: Path) -> list[MathProblem]:
    return list(read_problems(name, path, None, None))


def test_asdiv_units_are_removed(tmp_path: Path) -> None:
    assert read("asdiv", written(tmp_path, "ASDiv.xml", ASDIV)) == [
        MathProblem("1", "Ann has 3 apples and finds 4 apples. How many apples has she?", "7"),
        MathProblem("2", "Of 7 children three are boys. How many are boys, and how many girls?", "3, 4"),
    ]


@pytest.mark.parametrize("answer", ["27.0", 27.0, 27, "27"])
def test_amc23_floats_become_integers(tmp_path: Path, answer: object) -> None:
    path = written(tmp_path, "amc.jsonl", json.dumps({"problem": "What is $3^3$?", "answer": answer}) + "\n\n")
    assert read("amc23", path) == [MathProblem("1", "What is $3^3$?", "27")]


def test_fractions_are_preserved(tmp_path: Path) -> None:
    path = written(tmp_path, "s.json", [{"Body": "One.", "Question": "What?", "Answer": 3.05}])
    assert read("svamp", path) == [MathProblem("1", "One. What?", "3.05")]


def test_published_files(shared: Path) -> None:
    data = shared / "data"
    gsm8k = read("gsm8k", data / "gsm8k" / "test.jsonl")
    assert (len(gsm8k), gsm8k[0].answer, gsm8k[1318].key) == (1319, "18", "1319")
    assert len(read("gsm8k", data / "gsm8k" / "train.jsonl")) == 7473
    svamp = read("svamp", data / "svamp" / "SVAMP.json")
    assert (len(svamp), svamp[0].answer) == (1000, "51")
    assert svamp[0].question.endswith("25 dollars on each pack. How much do you have to pay to buy each pack?")
    forms = [read("math500", data / "math500" / f"math500_test.{kind}") for kind in ("json", "jsonl")]
    assert forms[0] == forms[1]
    assert (len(forms[0]), forms[0][0].answer) == (500, r"\left( 3, \frac{\pi}{2} \right)")


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        (
            "gsm8k",
            "a.jsonl",
            '{"problem": "p"}',
            r"problem 1 is not one of gsm8k \(it has no 'answer'\); each row needs",
        ),
        ("gsm8k", "a.jsonl", '{"question": "q", "answer": "no mark"}', "its answer has no ####"),
        ("gsm8k", "a.jsonl", '\n{"question"', r"a\.jsonl:2: cannot be read as .jsonl"),
        ("math500", "a.jsonl", '{"problem": null, "answer": "1"}', "problem 1 .*question or answer is null"),
        ("math500", "a.jsonl", "\x1f\x00", "byte 1 is 0, so this is not UTF-8 text"),
        ("math500", "a.json", "[]", "no problems in it"),
        ("math500", "a.jsonl", "", "no problems in it"),
        ("svamp", "a.json", '["text"]', "problem 1 is not one of svamp"),
        ("asdiv", "a.xml", "<Problem", "cannot be read as .xml"),
        ("asdiv", "a.xml", "<a><Problem><Body>b</Body></Problem></a>", "it has no 'answer'"),
    ],
)
def test_wrong_format_is_an_error(tmp_path: Path, name: str, file: str, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(name, written(tmp_path, file, content))


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere.json does not exist"):
        read("svamp", tmp_path / "nowhere.json")


def test_problems_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def load(name: str, config: str | None, revision: str | None, remedy: str) -> object:
        calls.extend((name, config, revision, remedy))
        return {"test": [{"question": "q", "answer": "so #### 3"}], "train": []}

    monkeypatch.setattr(hub, "load_dataset", load)
    assert list(read_problems("gsm8k", None, None, "abc")) == [MathProblem("1", "q", "3")]
    assert calls == ["openai/gsm8k", "main", "abc", "set the task's path to a local file of gsm8k"]
    with pytest.raises(ValueError, match="openai/gsm8k has no split 'dev'; choose one of test, train"):
        list(read_problems("gsm8k", None, "dev", None))
    assert all("/" in collection.hub for collection in COLLECTIONS.values())


def test_missing_network_suggests_a_local_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(hub.HubUnreachable, match="set the task's path to a local file of svamp"):
        list(read_problems("svamp", None, None, None))
