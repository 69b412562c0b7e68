"""Multiple choice: the questions of every benchmark, malformed ones, and the marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopkit.components.task import Choose, OptionLikelihoods
from loopkit.components.task.choice import MultipleChoice
from loopkit.errors import UserError

ROWS: dict[str | None, dict[str, Any]] = {
    None: {"question": "The sky is", "options": ["blue", "green"], "label": 0},
    "hellaswag": {
        "activity_label": "Baking",
        "ctx_a": "A man opens an oven.",
        "ctx_b": "he",
        "endings": ["takes [step] a cake out.", "sleeps. [title] Wake up", "sings."],
        "label": "1",
    },
    "arc_easy": {
        "question": "Which?",
        "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]},
        "answerKey": "3",
    },
    "piqa": {"goal": "Open it", "sol1": "pull", "sol2": "push", "label": 1},
    "winogrande": {
        "sentence": "Ann thanked Eve because _ had helped.",
        "option1": "Ann",
        "option2": "Eve",
        "answer": "2",
    },
    "boolq": {"passage": "Ice floats.", "question": "does ice float", "answer": True},
    "mmlu": {"question": " Pick. ", "subject": "abstract_algebra", "choices": ["p", "q", "r", "s"], "answer": 2},
}
EXPECTED: dict[str | None, tuple[tuple[tuple[str, str], ...], int]] = {
    None: ((("The sky is", " blue"), ("The sky is", " green")), 0),
    "hellaswag": (
        tuple(
            ("Baking: A man opens an oven. He", option)
            for option in (" takes a cake out.", " sleeps.. Wake up", " sings.")
        ),
        1,
    ),
    "arc_easy": (tuple(("Question: Which?\nAnswer:", option) for option in (" x", " y", " z")), 2),
    "piqa": (tuple(("Question: Open it\nAnswer:", option) for option in (" pull", " push")), 1),
    "winogrande": (tuple((f"Ann thanked Eve because {name}", " had helped.") for name in ("Ann", "Eve")), 1),
    "boolq": (
        tuple(("Ice floats.\nQuestion: does ice float?\nAnswer:", option) for option in (" no", " yes")),
        1,
    ),
    "mmlu": (
        tuple(
            (
                "The following are multiple choice questions (with answers) about abstract algebra.\n\n"
                "Pick.\nA. p\nB. q\nC. r\nD. s\nAnswer:",
                f" {letter}",
            )
            for letter in "ABCD"
        ),
        2,
    ),
}


def build(path: Path, *rows: dict[str, Any], **options: Any) -> MultipleChoice:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return MultipleChoice(path=path, **options)


@pytest.mark.parametrize("dataset", ROWS)
def test_benchmark_has_its_usual_prompt(dataset: Any, tmp_path: Path) -> None:
    task = build(tmp_path / "rows.jsonl", ROWS[dataset], dataset=dataset)
    (request,) = task.requests()
    assert isinstance(request, Choose)
    options, label = EXPECTED[dataset]
    assert request.options == options
    assert task.questions()["1"].label == label
    assert request.group == ("abstract_algebra" if dataset == "mmlu" else None)


def test_prompt_that_ends_in_a_blank_gets_none(tmp_path: Path) -> None:
    task = build(tmp_path / "rows.jsonl", {"question": "Q\n", "options": ["a", "b"], "label": 0})
    assert next(task.requests()) == Choose("1", (("Q\n", "a"), ("Q\n", "b")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, "label 2 is out of range; the labels of 2 options are 0 to 1"),
        ({"label": -1}, "label -1 is out of range"),
        ({"label": "0"}, "label '0' is not an integer"),
        ({"label": True}, "label True is not an integer"),
        ({"options": ["blue"]}, "1 option, and needs at least two"),
        ({"options": ["blue", " "]}, "option 1 is empty"),
        ({"options": "blue"}, "options is 'blue', not a list"),
        ({"options": ["blue", 3]}, "3 is not text"),
        ({"question": "\n"}, "the question is empty"),
        ({"question": None}, "None is not text"),
    ],
)
def test_malformed_question_names_file_and_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    task = build(tmp_path / "rows.jsonl", ROWS[None], {**ROWS[None], **change})
    with pytest.raises(UserError) as caught:
        list(task.requests())
    assert f"{tmp_path / 'rows.jsonl'}:2: " in str(caught.value)
    assert message in str(caught.value)


def test_missing_field_and_empty_file_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match=r"rows.jsonl:1: it has no 'label'; a question of a local file has question, o"):
        list(build(path, {"question": "a", "options": ["b", "c"]}).requests())
    with pytest.raises(UserError, match="its sentence has no _"):
        list(build(path, {**ROWS["winogrande"], "sentence": "a"}, dataset="winogrande").requests())
    with pytest.raises(UserError, match=r"rows.jsonl: no questions in it"):
        list(build(path).requests())


def test_hub_that_cannot_be_reached_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"dataset Rowan/hellaswag is not in the local cache.*path to a local .jsonl"):
        list(MultipleChoice(dataset="hellaswag").requests())


def test_options_that_exclude_each_other_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set dataset to a benchmark"):
        MultipleChoice()
    with pytest.raises(UserError, match="split and revision apply to the hub"):
        MultipleChoice(path=tmp_path / "a.jsonl", split="test")
    with pytest.raises(UserError, match="does not exist"):
        list(MultipleChoice(path=tmp_path / "a.jsonl").requests())


def test_marks_normalise_by_the_length_of_the_option(tmp_path: Path) -> None:
    """The long option has the smaller loss per character and the larger loss."""
    row = {"question": "a", "options": ["bb", "cccccccc"], "label": 1}
    task = build(tmp_path / "rows.jsonl", row, row, row, row, limit=3)
    requests = list(task.requests())
    assert len(requests) == 3
    answers = [OptionLikelihoods(nll, (1, 1)) for nll in ((4.0, 8.0), (9.0, 8.0), (float("nan"), 8.0))]
    marks = [task.mark(request, answer) for request, answer in zip(requests, answers, strict=True)]
    assert marks == [{"correct": c, "normalised": n} for c, n in ((0.0, 1.0), (1.0, 1.0), (0.0, 0.0))]
    assert task.total(marks) == {"accuracy": pytest.approx(1 / 3), "normalised_accuracy": pytest.approx(2 / 3)}
    assert task.total([]) == {}
