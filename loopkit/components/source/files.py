"""Text in local files: plain, JSON lines or parquet, read piece by piece, with errors that say what to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from loopkit.components.source import TEST, TRAIN, VALIDATION, canonical_split
from loopkit.errors import UserError, file_errors

ROWS = 1000
"""Rows of a parquet file or dataset that are in memory at a time."""


def text_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, each with its ``\n``; a byte order mark is skipped, ``\r\n`` stays as it is.

    Raises:
        ValueError: If the file is not UTF-8.
    """
    with file_errors(path, "read"), path.open(encoding="utf-8-sig", newline="\n") as file:
        number = 0
        try:
            for line in file:
                number += 1
                yield line
        except UnicodeDecodeError as error:
            raise UserError(
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
            raise UserError(f"{path}:{number}: not JSON ({error.msg}); one JSON object a line is expected") from error
        if not isinstance(row, dict) or not isinstance(row.get(key), str):
            there = f"it has {', '.join(map(repr, row))}" if isinstance(row, dict) else "it is not an object"
            raise UserError(f"{path}:{number}: no text under {key!r} ({there}); set data.source.key")
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
        raise UserError(f"{path}: not a parquet file ({error}); download it again") from error
    with file:
        check_column(str(path), key, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=ROWS, columns=[key]):
            yield from column_texts(str(path), key, batch.column(0).to_pylist())


def check_column(where: str, key: str, names: Iterable[str]) -> None:
    """Refuse a table without the column ``key``, naming those it has."""
    names = list(names)
    if key not in names:
        raise UserError(f"{where}: no column {key!r}; it has {', '.join(names)}; set data.source.key")


def column_texts(where: str, key: str, values: Iterable[object]) -> Iterator[str]:
    """The values of a column, all of which must be text."""
    for value in values:
        if not isinstance(value, str):
            raise UserError(f"{where}: column {key!r} holds {type(value).__name__}, not text; set data.source.key")
        yield value


def fingerprint_files(files: Iterable[Path]) -> str:
    """One digest of the contents of files, in order; names and dates do not enter."""
    digest = hashlib.sha256()
    for path in files:
        with file_errors(path, "read"), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def find_files(path: Path, option: str, suffixes: Collection[str]) -> list[Path]:
    """A named file, whatever its suffix, or the files of a folder with one of these, all levels, by their paths.

    Raises:
        UserError: If there is nothing to read; the message names the option.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{option}: {path} does not exist; give a file or a folder with some")
    files = sorted(f for f in path.rglob("*") if f.suffix in suffixes and f.is_file())
    if not files:
        wanted = ", ".join(sorted(suffixes))
        raise UserError(f"{option}: {path} has no {wanted} file: {listing(path)}; name one file")
    return files


def files_by_split(path: Path, option: str, suffixes: Collection[str]) -> dict[str, list[Path]]:
    """The files of each split, where a folder names them so (train.jsonl, validation-000.parquet), else all as train.

    Raises:
        UserError: If there is nothing to read; the message names the option.
    """
    pool = find_files(path, option, suffixes)
    by_split: dict[str, list[Path]] = {}
    for file in pool if path.is_dir() else []:
        name = canonical_split(file.stem.replace("-", ".").split(".")[0])
        if name in (TRAIN, VALIDATION, TEST):
            by_split.setdefault(name, []).append(file)
    return by_split if TRAIN in by_split else {TRAIN: pool}


def require_folder(path: Path, wanted: str) -> None:
    """Refuse a path that is not a folder.

    Raises:
        UserError: If nothing is there, or it is a file.
    """
    if not path.exists():
        raise UserError(f"data.source.path: {path} does not exist; give {wanted}")
    if not path.is_dir():
        raise UserError(f"data.source.path: {path} is a file; give {wanted}")


def listing(folder: Path, limit: int = 8) -> str:
    """What a folder holds, in one line, for a message."""
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return "it is empty"
    return f"it holds {', '.join(names[:limit])}" + (f" and {len(names) - limit} more" if len(names) > limit else "")
