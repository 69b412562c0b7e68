"""Mathematics problems with reference answers, from published files and hub datasets. No torch."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.source import hub
from loopkit.components.source.files import text_lines
from loopkit.errors import UserError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class MathProblem:
    """A question with its reference answer.

    Args:
        key: Unique within the split.
        question: The text.
        answer: Reference answer, in LaTeX or as a plain number.
    """

    key: str
    question: str
    answer: str


@dataclass(frozen=True)
class Collection:
    """A published set of problems.

    Args:
        hub: Name of the dataset on the hub.
        config: Configuration of the dataset; ``None`` if it has only one.
        split: The split that is usually reported.
        form: Description of the required columns, for messages.
        read: Extracts question and answer from a row.
    """

    hub: str
    config: str | None
    split: str
    form: str
    read: Callable[[Row], tuple[str, str]]


def _gsm8k(row: Row) -> tuple[str, str]:
    _, mark, answer = row["answer"].rpartition("####")
    if not mark:
        raise UserError("its answer has no ####")
    return row["question"], _plain(answer)


def _math500(row: Row) -> tuple[str, str]:
    return row["problem"], row["answer"]


def _svamp(row: Row) -> tuple[str, str]:
    return _two_parts(row["Body"], row["Question"]), _plain(row["Answer"])


def _asdiv(row: Row) -> tuple[str, str]:
    low = {name.lower(): value for name, value in row.items()}
    # "7 (apples)", or "3 (boys); 4 (girls)" for a question with two answers
    parts = [re.sub(r"\([^)]*\)", "", part) for part in low["answer"].split(";")]
    return _two_parts(low["body"], low["question"]), ", ".join(_plain(part) for part in parts)


def _amc23(row: Row) -> tuple[str, str]:
    question = row["problem"] if "problem" in row else row["question"]
    return question, _plain(row["answer"])


COLLECTIONS: dict[str, Collection] = {
    "gsm8k": Collection("openai/gsm8k", "main", "test", "question and answer, which ends in #### N", _gsm8k),
    "math500": Collection("HuggingFaceH4/MATH-500", None, "test", "problem and answer", _math500),
    "svamp": Collection("ChilleD/SVAMP", None, "test", "Body, Question and Answer", _svamp),
    "asdiv": Collection("EleutherAI/asdiv", None, "validation", "Body, Question and Answer", _asdiv),
    "amc23": Collection("math-ai/amc23", None, "test", "problem (or question) and answer", _amc23),
}


def read_problems(name: str, path: Path | None, split: str | None, revision: str | None) -> Iterator[MathProblem]:
    """Read the problems of a collection, in order.

    Args:
        name: One of ``COLLECTIONS``.
        path: A .jsonl, .json or .xml file; ``None``: read from the hub.
        split: Split on the hub; ``None``: the one that is usually reported.
        revision: Commit on the hub; ``None``: the newest.

    Raises:
        ValueError: If the data is missing or has another form.
        OSError: If the file or the hub cannot be read.
    """
    collection = COLLECTIONS[name]
    expected = f"each row needs {collection.form}; check that this is a file of {name}"
    where, rows = _read_hub(name, split, revision) if path is None else (str(path), _read_file(path))
    number = 0
    for number, row in enumerate(rows, 1):
        try:
            question, answer = collection.read(row)
            if not isinstance(question, str) or not isinstance(answer, str):
                raise UserError("its question or answer is null, or not text")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{where}: problem {number} is not one of {name} ({missing}); {expected}") from error
        yield MathProblem(str(number), question, answer)
    if number == 0:
        raise UserError(f"{where}: no problems in it; {expected}")


def _read_hub(name: str, split: str | None, revision: str | None) -> tuple[str, Iterator[Row]]:
    collection = COLLECTIONS[name]
    splits = hub.load_dataset(
        collection.hub, collection.config, revision, f"set the task's path to a local file of {name}"
    )
    split = collection.split if split is None else split
    if split not in splits:
        raise UserError(f"{collection.hub} has no split {split!r}; choose one of {', '.join(splits)}")
    return f"{collection.hub}, {split}", iter(splits[split])


def _read_file(path: Path) -> Iterator[Row]:
    """Read the rows of JSON lines, a JSON list, or ASDiv's XML."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; set the path of the task to a .jsonl, .json or .xml file")
    text = "".join(text_lines(path, "json"))
    place = str(path)
    try:
        if path.suffix.lower() == ".xml":
            problems = ElementTree.fromstring(text).findall(".//Problem")
            yield from ({part.tag: part.text or "" for part in problem} for problem in problems)
        elif text.lstrip().startswith("["):
            yield from json.loads(text)
        else:
            for number, line in enumerate(text.split("\n"), 1):
                place = f"{path}:{number}"
                if line.strip():
                    yield json.loads(line)
    except (json.JSONDecodeError, ElementTree.ParseError) as error:
        raise UserError(f"{place}: cannot be read as {path.suffix or 'JSON'} ({error}); download it again") from error


def _two_parts(body: str, question: str) -> str:
    """Join story and question; add the full stop that some stories lack."""
    body = body.strip()
    return f"{body}{'' if not body or body[-1] in '.?!' else '.'} {question.strip()}".strip()


def _plain(answer: object) -> str:
    """Format a number: strip it, and drop a fraction of zeros."""
    return re.sub(r"(?<=\d)\.0+$", "", str(answer).strip())
