"""Rows of several columns from local files: JSON lines, a JSON list, or parquet. A value may be missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loopkit.components.source.files import ROWS, text_lines
from loopkit.errors import UserError

SUFFIXES = frozenset({".jsonl", ".json", ".parquet"})
"""Files of a folder that are read; a file that is named may have any suffix, and is JSON lines if it has another."""

Row = tuple[str | None, ...]


def read_rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The texts in some columns of every row, in order; None where there is null or nothing.

    Raises:
        ValueError: If the file is not of its form, no row can have such a column, or a value is not text.
    """
    if file.suffix == ".parquet":
        yield from _parquet(file, columns)
    else:
        yield from _objects(file, columns)


def as_texts(where: str, columns: Sequence[str], values: Sequence[Any]) -> Row:
    """One row's values, all of which must be text or null."""
    for column, value in zip(columns, values, strict=True):
        if value is not None and not isinstance(value, str):
            kind = type(value).__name__
            raise UserError(f"{where}: {column!r} holds {kind}, not text; name the columns in data.source")
    return tuple(values)


def no_column(where: str, column: str, names: Sequence[str]) -> ValueError:
    """The error of a table without a column."""
    return ValueError(f"{where}: no column {column!r}; it has {', '.join(names)}; name the columns in data.source")


def _objects(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    known: dict[str, None] = {}
    for place, row in _json_list(file) if file.suffix == ".json" else _json_lines(file):
        if not isinstance(row, dict):
            raise UserError(f"{place}: not a JSON object; rows of named columns are expected")
        known |= dict.fromkeys(row)
        yield as_texts(place, columns, [row.get(column) for column in columns])
    for column in columns if known else ():  # JSON may leave nulls out, so only the whole file tells
        if column not in known:
            raise no_column(str(file), column, list(known))


def _json_lines(file: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text_lines(file), 1):
        if line.strip():
            place = f"{file}:{number}"
            try:
                yield place, json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{place}: not JSON ({error.msg}); one JSON object a line is expected") from error


def _json_list(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.loads("".join(text_lines(file)))
    except json.JSONDecodeError as error:
        raise UserError(f"{file}: not JSON ({error}); call JSON lines .jsonl") from error
    if not isinstance(rows, list):
        raise UserError(f"{file}: not a JSON list; rows of named columns are expected")
    yield from ((f"{file}: row {number}", row) for number, row in enumerate(rows, 1))


def _parquet(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{file}: not a parquet file ({error}); download it again") from error
    with table:
        names = table.schema_arrow.names
        for column in columns:
            if column not in names:
                raise no_column(str(file), column, names)
        for batch in table.iter_batches(batch_size=ROWS, columns=list(columns)):
            values = [batch.column(column).to_pylist() for column in columns]
            yield from (as_texts(str(file), columns, row) for row in zip(*values, strict=True))
