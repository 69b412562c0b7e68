"""Text in local files: plain, JSON lines or parquet, read piece by piece, with errors that say what to do."""

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
"""Rows of a parquet file or dataset that are in memory at a time."""
LISTED = 8
"""Most names in a message."""
REMEDY = "remove such rows, or name another column in data.source"


def text_lines(path: Path, stated: Format = "text") -> Iterator[str]:
    r"""The lines of a UTF-8 file, each with its ``\n``; a byte order mark is skipped, ``\r\n`` stays as it is.

    Raises:
        UserError: If the file is not UTF-8, or visibly of another format than stated.
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
    """The column ``key`` of a parquet file.

    Raises:
        UserError: If it is not a parquet file, or has no text column of that name.
    """
    first = 1
    for columns in parquet_columns(path, [key]):
        yield from column_texts(str(path), key, columns[0], first)
        first += len(columns[0])


def parquet_columns(path: Path, keys: Sequence[str]) -> Iterator[list[list[Any]]]:
    """The values of some columns of a parquet file, some rows at a time.

    Raises:
        UserError: If it is not a parquet file, or a column is not there.
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
    """Refuse a table without the column ``key``, naming those it has."""
    names = list(names)
    if key not in names:
        raise UserError(f"{where}: no column {key!r}; it has {', '.join(names)}; set its name in data.source")


def column_texts(where: str, key: str, values: Iterable[object], first: int = 1) -> Iterator[str]:
    """The values of a column, all of which must be text; ``first`` is the number of the first row."""
    for number, value in enumerate(values, first):
        yield check_text(f"{where}: row {number}", key, value, REMEDY)


def fingerprint_files(files: Iterable[Path], other: Format | None = None) -> str:
    """One digest of files, in order: their contents and, with ``other``, how each is read; not their names and dates.

    Args:
        files: The files.
        other: The format of a file whose suffix stands for none; ``None`` where the suffix decides nothing.
    """
    digest = hashlib.sha256()
    for path in files:
        if other is not None:
            digest.update(f"{format_of(path, other)} ".encode())
        with file_errors(path, "read"), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def find_files(path: Path, option: str, suffixes: Collection[str]) -> list[Path]:
    """A named file, whatever its suffix, or the files of a folder with one of these, all levels, by their paths.

    A warning lists the files of the folder that are left out.

    Raises:
        UserError: If there is nothing to read; the message names the option.
    """
    files = _candidates(path, option, suffixes)
    if path.is_dir():
        _warn_of_skipped(path, option, frozenset(files))
    return files


def files_by_split(path: Path, option: str, suffixes: Collection[str]) -> dict[str, list[Path]]:
    """The files of each split, where a folder names them so (train.jsonl, validation-000.parquet), else all as train.

    A warning lists the files of the folder that are left out.

    Raises:
        UserError: If there is nothing to read; the message names the option.
    """
    pool = _candidates(path, option, suffixes)
    by_split: dict[str, list[Path]] = {}
    for file in pool if path.is_dir() else []:
        name = canonical_split(re.split("[-.]", file.name)[0].lower())
        if name in (TRAIN, VALIDATION, TEST):
            by_split.setdefault(name, []).append(file)
    if TRAIN not in by_split:
        by_split = {TRAIN: pool}
    if path.is_dir():
        _warn_of_skipped(path, option, frozenset(file for files in by_split.values() for file in files))
    return by_split


def _candidates(path: Path, option: str, suffixes: Collection[str]) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{option}: {path} does not exist; give a file or a folder with some")
    files = sorted(f for f in path.rglob("*") if f.suffix.lower() in suffixes and f.is_file())
    if not files:
        wanted = ", ".join(sorted(suffixes))
        raise UserError(f"{option}: {path} has no {wanted} file: {listing(path)}; name one file")
    return files


def _warn_of_skipped(folder: Path, option: str, read: Collection[Path]) -> None:
    """Name the files of a folder that are not read; hidden ones, such as a version control's, go without saying."""
    others = [file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file() and file not in read]
    skipped = [file for file in others if not any(part.startswith(".") for part in file.parts)]
    if not skipped:
        return
    skipped.sort(key=lambda file: file.suffix.lower() not in COMPRESSED)  # most likely data
    names = ", ".join(map(str, skipped[:LISTED])) + (f" and {len(skipped) - LISTED} more" if skipped[LISTED:] else "")
    remedy = "; decompress what is to be read" if skipped[0].suffix.lower() in COMPRESSED else ""
    message = f"{option}: of {folder}, {len(read)} files are read and {len(skipped)} are not: {names}{remedy}"
    warnings.warn(message, DataWarning, stacklevel=2)


def require_folder(path: Path, wanted: str) -> None:
    """Refuse a path that is not a folder.

    Raises:
        UserError: If nothing is there, or it is a file.
    """
    if not path.exists():
        raise UserError(f"data.source.path: {path} does not exist; give {wanted}")
    if not path.is_dir():
        raise UserError(f"data.source.path: {path} is a file; give {wanted}")


def listing(folder: Path, limit: int = LISTED) -> str:
    """What a folder holds, in one line, for a message."""
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return "it is empty"
    return f"it holds {', '.join(names[:limit])}" + (f" and {len(names) - limit} more" if len(names) > limit else "")
