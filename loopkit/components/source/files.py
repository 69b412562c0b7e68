"""Read local text and parquet files in parts, and find the files of each split."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from loopkit.components.source import TEST, TRAIN, VALIDATION, DataWarning, canonical_split
from loopkit.components.source.formats import COMPRESSED, Format, check_content, check_text, format_of
from loopkit.errors import UserError, file_errors

ROWS = 1000
"""Rows of a parquet file or dataset in memory at a time."""
MAX_LISTED = 8
"""Maximum number of names in a message."""
REMEDY = "remove such rows, or set another column in data.source"


def text_lines(path: Path, stated: Format = "text") -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file with their ends; a byte order mark is skipped, ``\r\n`` is not converted.

    Raises:
        UserError: If the file is not UTF-8, or its content contradicts the stated format.
    """
    check_content(path, stated)
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


def parquet_texts(path: Path, key: str) -> Iterator[str]:
    """Yield the column ``key`` of a parquet file.

    Raises:
        UserError: If it is not a parquet file, or has no text column of that name.
    """
    first = 1
    for columns in parquet_columns(path, [key]):
        yield from column_texts(str(path), key, columns[0], first)
        first += len(columns[0])


def parquet_columns(path: Path, keys: Sequence[str]) -> Iterator[list[list[Any]]]:
    """Yield the values of some columns of a parquet file, in batches of rows.

    Raises:
        UserError: If it is not a parquet file, or a column is missing.
    """
    check_content(path, "parquet")
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path}: not a parquet file ({error}); download it again") from error
    with file:
        for key in keys:
            check_column(str(path), key, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=ROWS, columns=list(keys)):
            yield [batch.column(key).to_pylist() for key in keys]


def check_column(where: str, key: str, names: Iterable[str]) -> None:
    """Raise a ``UserError`` if a table has no column ``key``."""
    names = list(names)
    if key not in names:
        raise UserError(f"{where}: no column {key!r}; it has {', '.join(names)}; set its name in data.source")


def column_texts(where: str, key: str, values: Iterable[object], first: int = 1) -> Iterator[str]:
    """Yield the values of a column, all of which must be text; ``first`` is the number of the first row."""
    for number, value in enumerate(values, first):
        yield check_text(f"{where}: row {number}", key, value, REMEDY)


def fingerprint_files(files: Iterable[Path], default: Format | None = None) -> str:
    """Compute one digest of the contents of files, in order; names and dates do not count.

    Args:
        files: The files.
        default: Format of files with an unknown suffix; the digest then includes the format of each file. ``None`` if
            the suffix does not affect how files are read.
    """
    digest = hashlib.sha256()
    for path in files:
        if default is not None:
            digest.update(f"{format_of(path, default)} ".encode())
        with file_errors(path, "read"), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def find_files(path: Path, option: str, suffixes: Collection[str]) -> list[Path]:
    """Return a file itself, or the files of a folder with these suffixes, at all levels, sorted by path.

    A warning lists the skipped files of the folder.

    Raises:
        UserError: If there are no files; the message names the option.
    """
    files = _candidates(path, option, suffixes)
    if path.is_dir():
        _warn_of_skipped(path, option, frozenset(files))
    return files


def files_by_split(path: Path, option: str, suffixes: Collection[str]) -> dict[str, list[Path]]:
    """Return the files of each split by their names (train.jsonl, validation-000.parquet), else all files as train.

    A warning lists the skipped files of the folder.

    Raises:
        UserError: If there are no files; the message names the option.
    """
    candidates = _candidates(path, option, suffixes)
    by_split: dict[str, list[Path]] = {}
    for file in candidates if path.is_dir() else []:
        name = canonical_split(re.split("[-.]", file.name)[0].lower())
        if name in (TRAIN, VALIDATION, TEST):
            by_split.setdefault(name, []).append(file)
    if TRAIN not in by_split:
        by_split = {TRAIN: candidates}
    if path.is_dir():
        _warn_of_skipped(path, option, frozenset(file for files in by_split.values() for file in files))
    return by_split


def _candidates(path: Path, option: str, suffixes: Collection[str]) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{option}: {path} does not exist; set it to a file or a folder of files")
    files = sorted(f for f in path.rglob("*") if f.suffix.lower() in suffixes and f.is_file())
    if not files:
        expected = ", ".join(sorted(suffixes))
        raise UserError(f"{option}: {path} has no {expected} file: {listing(path)}; set it to one file")
    return files


def _warn_of_skipped(folder: Path, option: str, read: Collection[Path]) -> None:
    """Warn of the files of a folder that are not read, except hidden ones."""
    unread = [file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file() and file not in read]
    skipped = [file for file in unread if not any(part.startswith(".") for part in file.parts)]
    if not skipped:
        return
    skipped.sort(key=lambda file: file.suffix.lower() not in COMPRESSED)  # compressed files are most likely data
    names = _join_names(list(map(str, skipped)))
    remedy = "; decompress those to read" if skipped[0].suffix.lower() in COMPRESSED else ""
    message = f"{option}: of {folder}, {len(read)} files are read and {len(skipped)} are not: {names}{remedy}"
    warnings.warn(message, DataWarning, stacklevel=2)


def listing(folder: Path) -> str:
    """Format the contents of a folder for a message."""
    names = sorted(entry.name for entry in folder.iterdir())
    return f"it has {_join_names(names)}" if names else "it is empty"


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
