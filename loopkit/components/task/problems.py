"""Mathematics problems with their answers, from the files and hub datasets that the field uses. No torch."""

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
    """A question with its answer.

    Args:
        key: Names it within its split.
        question: The text.
        answer: What is right, in LaTeX or as a plain number.
    """

    key: str
    question: str
    answer: str


@dataclass(frozen=True)
class Collection:
    """A published set of problems.

    Args:
        hub: Its name on the hub, and of one of its configurations.
        config: See ``hub``.
        split: The split that the field reports.
        form: What a row must have, in words.
        read: Question and answer of a row.
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
    # "7 (apples)", and "3 (boys); 4 (girls)" where two things are asked
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
    """The problems of a collection, in their order.

    Args:
        name: One of ``COLLECTIONS``.
        path: A .jsonl, .json or .xml file; ``None``: the hub.
        split: On the hub; ``None``: the one that the field reports.
        revision: Commit on the hub; ``None``: the newest.

    Raises:
        ValueError: If the data is missing or of another form; the message names cause and remedy.
        OSError: If the file or the hub cannot be read.
    """
    collection = COLLECTIONS[name]
    wanted = f"each needs {collection.form}; is this a file of {name}?"
    where, rows = _of_hub(name, split, revision) if path is None else (str(path), _of_file(path))
    number = 0
    for number, row in enumerate(rows, 1):
        try:
            question, answer = collection.read(row)
            if not isinstance(question, str) or not isinstance(answer, str):
                raise UserError("its question or answer is null, or not text")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{where}: problem {number} is not one of {name} ({missing}); {wanted}") from error
        yield MathProblem(str(number), question, answer)
    if number == 0:
        raise UserError(f"{where}: no problems in it; {wanted}")


def _of_hub(name: str, split: str | None, revision: str | None) -> tuple[str, Iterator[Row]]:
    collection = COLLECTIONS[name]
    splits = hub.load_dataset(
        collection.hub, collection.config, revision, f"set the task's path to a local file of {name}"
    )
    chosen = collection.split if split is None else split
    if chosen not in splits:
        raise UserError(f"{collection.hub} has no split {chosen!r}; there are {', '.join(splits)}")
    return f"{collection.hub}, {chosen}", iter(splits[chosen])


def _of_file(path: Path) -> Iterator[Row]:
    """Rows of a file: JSON lines, a JSON list, or ASDiv's XML."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; give the task a path to a .jsonl, .json or .xml file")
    text = "".join(text_lines(path, "json"))
    place = str(path)
    try:
        if path.suffix.lower() == ".xml":
            yield from ({part.tag: part.text or "" for part in found} for found in _elements(text))
        elif text.lstrip().startswith("["):
            yield from json.loads(text)
        else:
            for number, line in enumerate(text.split("\n"), 1):
                place = f"{path}:{number}"
                if line.strip():
                    yield json.loads(line)
    except (json.JSONDecodeError, ElementTree.ParseError) as error:
        raise UserError(f"{place}: cannot be read as {path.suffix or 'JSON'} ({error}); download it again") from error


def _elements(text: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(text).findall(".//Problem")


def _two_parts(body: str, question: str) -> str:
    """The story and what is asked of it; some stories end without a full stop."""
    body = body.strip()
    return f"{body}{'' if not body or body[-1] in '.?!' else '.'} {question.strip()}".strip()


def _plain(answer: object) -> str:
    """A number as one writes it: no blanks around it, and integers without a fraction."""
    text = str(answer).strip()
    return re.sub(r"(?<=\d)\.0+$", "", text)
