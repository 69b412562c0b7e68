"""Read rows of several columns from JSON lines, a JSON list, or parquet; values may be missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loopkit.components.source.files import REMEDY, check_column, parquet_columns, text_lines
from loopkit.components.source.formats import Format, check_text, format_of
from loopkit.errors import UserError

SUFFIXES = frozenset({".jsonl", ".json", ".parquet"})
"""Suffixes of the files that are read from a folder; a single file with another suffix is JSON lines."""

Row = tuple[str | None, ...]


def read_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield every row: its position in the file, for messages, and the texts in some of its columns.

    A text is None if it is null or missing.

    Args:
        file: The file.
        columns: Names of the columns.

    Raises:
        UserError: If the file has the wrong format, a column is missing, or a value is not text.
    """
    file_format = format_of(file, "json_lines")
    if file_format == "parquet":
        yield from _parquet_rows(file, columns)
    else:
        yield from _json_rows(file, columns, json_objects(file, file_format))


def json_objects(file: Path, file_format: Format) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of JSON lines or a JSON list, with its position in the file.

    Raises:
        UserError: If the file has the wrong format.
    """
    for place, row in _json_list(file) if file_format == "json" else _json_lines(file):
        if not isinstance(row, dict):
            raise UserError(f"{place}: not a JSON object of named columns")
        yield place, row


def as_texts(where: str, columns: Sequence[str], values: Sequence[Any]) -> Row:
    """Return the values of a row, all of which must be text or null."""
    pairs = zip(columns, values, strict=True)
    return tuple(None if value is None else check_text(where, column, value, REMEDY) for column, value in pairs)


def _json_rows(
    file: Path, columns: Sequence[str], rows: Iterator[tuple[str, dict[str, Any]]]
) -> Iterator[tuple[str, Row]]:
    names: dict[str, None] = {}
    for place, row in rows:
        names |= dict.fromkeys(row)
        yield place, as_texts(place, columns, [row.get(column) for column in columns])
    for column in columns if names else ():  # rows may omit nulls, so a column is missing only if all rows omit it
        check_column(str(file), column, names)


def _json_lines(file: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text_lines(file, "json_lines"), 1):
        if line.strip():
            place = f"{file}:{number}"
            try:
                yield place, json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{place}: not JSON ({error.msg}); write one JSON object per line") from error


def _json_list(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.loads("".join(text_lines(file, "json")))
    except json.JSONDecodeError as error:
        raise UserError(f"{file}: not JSON ({error}); rename JSON lines to end in .jsonl") from error
    if not isinstance(rows, list):
        raise UserError(f"{file}: not a JSON list of rows with named columns")
    yield from ((f"{file}: row {number}", row) for number, row in enumerate(rows, 1))


def _parquet_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    number = 0
    for values in parquet_columns(file, columns):
        for row in zip(*values, strict=True):
            number += 1
            place = f"{file}: row {number}"
            yield place, as_texts(place, columns, row)
