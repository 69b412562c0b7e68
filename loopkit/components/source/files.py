"""Text in local files: plain, JSON lines or parquet, read piece by piece, with errors that say what to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

ROWS = 1000
"""Rows of a parquet file or dataset that are in memory at a time."""


def text_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, each with its ``\n``; a byte order mark is skipped, ``\r\n`` stays as it is.

    Raises:
        ValueError: If the file is not UTF-8.
    """
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        number = 0
        try:
            for line in file:
                number += 1
                yield line
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: not UTF-8 text after line {number} ({error.reason}); convert it, for example with "
                f"iconv -f latin1 -t utf-8, or name the right file"
            ) from error


def json_texts(path: Path, key: str) -> Iterator[str]:
    """The text under ``key`` of every line of a JSON lines file; blank lines are skipped.

    Raises:
        ValueError: If a line is not a JSON object with a text under ``key``.
    """
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: not JSON ({error.msg}); one JSON object a line is expected") from error
        if not isinstance(row, dict) or not isinstance(row.get(key), str):
            there = f"it has {', '.join(map(repr, row))}" if isinstance(row, dict) else "it is not an object"
            raise ValueError(f"{path}:{number}: no text under {key!r} ({there}); set data.source.key")
        yield row[key]


def parquet_texts(path: Path, key: str) -> Iterator[str]:
    """The column ``key`` of a parquet file.

    Raises:
        ValueError: If it is no parquet file, or has no text column of that name.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not a parquet file ({error}); download it again") from error
    with file:
        check_column(str(path), key, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=ROWS, columns=[key]):
            yield from column_texts(str(path), key, batch.column(0).to_pylist())


def check_column(where: str, key: str, names: Iterable[str]) -> None:
    """Refuse a table without the column ``key``, naming those it has."""
    names = list(names)
    if key not in names:
        raise ValueError(f"{where}: no column {key!r}; it has {', '.join(names)}; set data.source.key")


def column_texts(where: str, key: str, values: Iterable[object]) -> Iterator[str]:
    """The values of a column, all of which must be text."""
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"{where}: column {key!r} holds {type(value).__name__}, not text; set data.source.key")
        yield value


def fingerprint_files(files: Iterable[Path]) -> str:
    """One digest of the contents of files, in order; names and dates do not enter."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def require_folder(path: Path, wanted: str) -> None:
    """Refuse a path that is not a folder.

    Raises:
        FileNotFoundError: If nothing is there.
        NotADirectoryError: If it is a file.
    """
    if not path.exists():
        raise FileNotFoundError(f"data.source.path: {path} does not exist; give {wanted}")
    if not path.is_dir():
        raise NotADirectoryError(f"data.source.path: {path} is a file; give {wanted}")


def listing(folder: Path, limit: int = 8) -> str:
    """What a folder holds, in one line, for a message."""
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return "it is empty"
    return f"it holds {', '.join(names[:limit])}" + (f" and {len(names) - limit} more" if len(names) > limit else "")
