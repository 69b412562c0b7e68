"""Rows of several columns from local files: JSON lines, a JSON list, or parquet. A value may be missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loopkit.components.source.files import REMEDY, parquet_columns, text_lines
from loopkit.components.source.formats import Format, check_text, format_of
from loopkit.errors import UserError

SUFFIXES = frozenset({".jsonl", ".json", ".parquet"})
"""Files of a folder that are read; a file that is named may have any suffix, and is JSON lines if it has another."""

Row = tuple[str | None, ...]


def read_rows(file: Path, columns: Sequence[str], stated: Format | None = None) -> Iterator[tuple[str, Row]]:
    """Every row in order: its place in the file, for messages, and the texts in some of its columns.

    A text is None where there is null or nothing.

    Args:
        file: The file.
        columns: Names of the columns.
        stated: How the file is read; ``None``: as its suffix says, and as JSON lines where it says nothing.

    Raises:
        UserError: If the file is not of its form, no row can have such a column, or a value is not text.
    """
    form = format_of(file, "json_lines") if stated is None else stated
    if form == "parquet":
        yield from _parquet(file, columns)
    else:
        yield from _texts(file, columns, json_objects(file, form))


def json_objects(file: Path, form: Format) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a file of JSON lines or a JSON list, with its place in the file.

    Raises:
        UserError: If the file is not of its form.
    """
    for place, row in _json_list(file) if form == "json" else _json_lines(file):
        if not isinstance(row, dict):
            raise UserError(f"{place}: not a JSON object; rows of named columns are expected")
        yield place, row


def as_texts(where: str, columns: Sequence[str], values: Sequence[Any]) -> Row:
    """One row's values, all of which must be text or null."""
    pairs = zip(columns, values, strict=True)
    return tuple(None if value is None else check_text(where, column, value, REMEDY) for column, value in pairs)


def no_column(where: str, column: str, names: Sequence[str]) -> UserError:
    """The error of a table without a column."""
    return UserError(f"{where}: no column {column!r}; it has {', '.join(names)}; name the columns in data.source")


def _texts(file: Path, columns: Sequence[str], rows: Iterator[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, Row]]:
    known: dict[str, None] = {}
    for place, row in rows:
        known |= dict.fromkeys(row)
        yield place, as_texts(place, columns, [row.get(column) for column in columns])
    for column in columns if known else ():  # JSON may leave nulls out, so only the whole file tells
        if column not in known:
            raise no_column(str(file), column, list(known))


def _json_lines(file: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text_lines(file, "json_lines"), 1):
        if line.strip():
            place = f"{file}:{number}"
            try:
                yield place, json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{place}: not JSON ({error.msg}); one JSON object a line is expected") from error


def _json_list(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.loads("".join(text_lines(file, "json")))
    except json.JSONDecodeError as error:
        raise UserError(f"{file}: not JSON ({error}); call JSON lines .jsonl") from error
    if not isinstance(rows, list):
        raise UserError(f"{file}: not a JSON list; rows of named columns are expected")
    yield from ((f"{file}: row {number}", row) for number, row in enumerate(rows, 1))


def _parquet(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    number = 0
    for values in parquet_columns(file, columns):
        for row in zip(*values, strict=True):
            number += 1
            place = f"{file}: row {number}"
            yield place, as_texts(place, columns, row)
