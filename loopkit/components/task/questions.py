"""Multiple-choice questions from published datasets and local files. No torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.source import hub
from loopkit.components.source.formats import format_of
from loopkit.components.source.rows import json_objects
from loopkit.errors import UserError
from loopkit.plural import plural

Row = Mapping[str, Any]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Question:
    """A question with its options.

    Args:
        prompts: The prompt of each option, usually the same.
        options: The text that continues each prompt, without the blank before it.
        label: Index of the correct option.
        group: Group whose accuracy is reported separately, such as a subject.
    """

    prompts: tuple[str, ...]
    options: tuple[str, ...]
    label: int
    group: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """A published dataset of questions, with the prompts that are usual for it.

    Args:
        hub: Name of the dataset on the hub.
        config: Configuration of the dataset; ``None`` if it has only one.
        split: The split that is usually reported.
        form: Description of the required fields, for messages.
        read: Builds a question from a row.
    """

    hub: str
    config: str | None
    split: str
    form: str
    read: Callable[[Row], Question]


def _same_prompt(prompt: str, options: list[str], label: int, group: str | None = None) -> Question:
    return Question((prompt,) * len(options), tuple(options), label, group)


def _answered(question: str) -> str:
    return f"Question: {question}\nAnswer:"


def _local(row: Row) -> Question:
    if not isinstance(row["options"], list):
        raise UserError(f"options is {row['options']!r}, not a list")
    return _same_prompt(row["question"], row["options"], row["label"])


def _hellaswag(row: Row) -> Question:
    context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    return _same_prompt(_without_markup(context), [_without_markup(end) for end in row["endings"]], int(row["label"]))


def _without_markup(text: str) -> str:
    """Remove the markup of WikiHow from a text: ``[title]`` ends a sentence, other brackets are dropped."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def _arc(row: Row) -> Question:
    names, options = row["choices"]["label"], row["choices"]["text"]
    return _same_prompt(_answered(row["question"]), options, names.index(row["answerKey"]))


def _piqa(row: Row) -> Question:
    return _same_prompt(_answered(row["goal"]), [row["sol1"], row["sol2"]], row["label"])


def _winogrande(row: Row) -> Question:
    """The options fill the blank, and what follows the blank is scored."""
    before, blank, after = row["sentence"].partition("_")
    if not blank:
        raise UserError("its sentence has no _")
    prompts = tuple(before + row[name] for name in ("option1", "option2"))
    return Question(prompts, (after.strip(),) * 2, int(row["answer"]) - 1)


def _boolq(row: Row) -> Question:
    prompt = f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"
    answer = row["answer"] if "answer" in row else bool(row["label"])
    return _same_prompt(prompt, ["no", "yes"], int(answer))


def _mmlu(row: Row) -> Question:
    letters = list(_LETTERS[: len(row["choices"])])
    lines = [f"{letter}. {option}" for letter, option in zip(letters, row["choices"], strict=True)]
    subject = row["subject"].replace("_", " ")
    head = f"The following are multiple choice questions (with answers) about {subject}."
    prompt = "\n".join([head, "", row["question"].strip(), *lines, "Answer:"])
    return _same_prompt(prompt, letters, row["answer"], row["subject"])


LOCAL = Benchmark("", None, "", "question, options (a list of texts) and label (the index of the right one)", _local)
_ARC = "question, choices (text and label) and answerKey"
BENCHMARKS: dict[str, Benchmark] = {
    "hellaswag": Benchmark(
        "Rowan/hellaswag", None, "validation", "activity_label, ctx_a, ctx_b, endings and label", _hellaswag
    ),
    "arc_easy": Benchmark("allenai/ai2_arc", "ARC-Easy", "test", _ARC, _arc),
    "arc_challenge": Benchmark("allenai/ai2_arc", "ARC-Challenge", "test", _ARC, _arc),
    "piqa": Benchmark("baber/piqa", None, "validation", "goal, sol1, sol2 and label", _piqa),
    "winogrande": Benchmark(
        "allenai/winogrande", "winogrande_xl", "validation", "sentence, option1, option2 and answer", _winogrande
    ),
    "boolq": Benchmark("google/boolq", None, "validation", "passage, question and answer", _boolq),
    "mmlu": Benchmark("cais/mmlu", "all", "test", "question, subject, choices and answer", _mmlu),
}


def read_questions(name: str | None, path: Path | None, split: str | None, revision: str | None) -> Iterator[Question]:
    """Read the questions of a benchmark or of a local file, in order.

    Args:
        name: One of ``BENCHMARKS``; ``None``: the local form.
        path: A .jsonl or .json file; ``None``: read from the hub.
        split: Split on the hub; ``None``: the one that is usually reported.
        revision: Commit on the hub; ``None``: the newest.

    Raises:
        UserError: If the data is missing, or a question is malformed; the message contains its position.
        OSError: If the file or the hub cannot be read.
    """
    benchmark = LOCAL if name is None else BENCHMARKS[name]
    expected = f"a question of {name or 'a local file'} has {benchmark.form}"
    where, rows = (str(path), _file_rows(path)) if path is not None else _hub_rows(benchmark, name, split, revision)
    is_empty = True
    for place, row in rows:
        is_empty = False
        try:
            question = benchmark.read(row)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{place}: {problem}; {expected}") from error
        if invalid := _problem(question):
            raise UserError(f"{place}: {invalid}; {expected}")
        yield question
    if is_empty:
        raise UserError(f"{where}: no questions in it; {expected}")


def _problem(question: Question) -> str | None:
    """Describe what is wrong with a question; ``None`` if nothing is."""
    options, label = question.options, question.label
    if not_text := [text for text in (*question.prompts, *options) if not isinstance(text, str)]:
        return f"{not_text[0]!r} is not text"
    if len(options) < 2:
        return f"the question has {plural(len(options), 'option')}, and needs at least two"
    if empty := [number for number, option in enumerate(options) if not option.strip()]:
        return f"option {empty[0]} is empty"
    if not all(prompt.strip() for prompt in question.prompts):
        return "the question is empty"
    if not isinstance(label, int) or isinstance(label, bool):
        return f"label {label!r} is not an integer"
    if not 0 <= label < len(options):
        return f"label {label} is out of range; the labels of {len(options)} options are 0 to {len(options) - 1}"
    return None


def _file_rows(path: Path) -> Iterator[tuple[str, Row]]:
    if not path.is_file():
        raise UserError(f"{path} does not exist; set the path of the task to a .jsonl or .json file")
    file_format = format_of(path, "json_lines")
    if file_format not in ("json", "json_lines"):
        raise UserError(f"{path}: questions are read from .jsonl and .json files; convert it")
    yield from json_objects(path, file_format)


def _hub_rows(
    benchmark: Benchmark, name: str | None, split: str | None, revision: str | None
) -> tuple[str, Iterator[tuple[str, Row]]]:
    remedy = f"set the task's path to a local .jsonl file of {name}"
    splits = hub.load_dataset(benchmark.hub, benchmark.config, revision, remedy)
    split = benchmark.split if split is None else split
    if split not in splits:
        raise UserError(f"{benchmark.hub} has no split {split!r}; choose one of {', '.join(splits)}")
    where = f"{benchmark.hub}, {split}"
    return where, ((f"{where}: row {number}", row) for number, row in enumerate(splits[split], 1))
