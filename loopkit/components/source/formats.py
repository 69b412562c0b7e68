"""What a data file holds: stated by its suffix, checked against its first bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

from loopkit.errors import UserError

Format = Literal["text", "json_lines", "json", "parquet"]

SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".md": "text",
    ".jsonl": "json_lines",
    ".ndjson": "json_lines",
    ".json": "json",
    ".parquet": "parquet",
}
"""What the suffixes stand for, in upper or lower case."""

HEAD = 2**16
"""Bytes that are looked at before a file is read."""

_PARQUET = b"PAR1"
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "compressed with gzip", "decompress it with gunzip -k"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "decompress it with zstd -d"),
    (b"BZh", "compressed with bzip2", "decompress it with bunzip2 -k"),
    (b"\xfd7zXZ\x00", "compressed with xz", "decompress it with unxz -k"),
    (b"PK\x03\x04", "a zip archive", "unpack it with unzip"),
    (_PARQUET, "a parquet file", "rename it to end in .parquet"),
    (b"ARROW1", "an Arrow file", "convert it to parquet"),
    (b"%PDF-", "a PDF", "extract its text"),
    (b"version https://git-lfs", "a pointer of Git LFS to a file that is not here", "fetch it with git lfs pull"),
    (b"\xff\xfe\x00\x00", "UTF-32 text", "convert it with iconv -f utf-32 -t utf-8"),
    (b"\xff\xfe", "UTF-16 text", "convert it with iconv -f utf-16 -t utf-8"),
    (b"\xfe\xff", "UTF-16 text", "convert it with iconv -f utf-16 -t utf-8"),
)
COMPRESSED = frozenset({".gz", ".zst", ".bz2", ".xz", ".zip"})


def format_of(file: Path, other: Format) -> Format:
    """The format that a file's suffix stands for, or ``other`` where it stands for none."""
    return SUFFIXES.get(file.suffix.lower(), other)


def check_content(file: Path, stated: Format) -> None:
    """Refuse a file whose first bytes are not of the format that it is to be read as.

    Raises:
        UserError: With what it is and how to make it readable.
    """
    with file.open("rb") as opened:
        head = opened.read(HEAD)
    for signature, what, remedy in _SIGNATURES:
        if head.startswith(signature) and not (signature == _PARQUET and stated == "parquet"):
            raise UserError(f"{file}: this is {what}; {remedy}")
    if stated == "parquet":
        return
    if (place := head.find(b"\0")) >= 0:
        raise UserError(
            f"{file}: byte {place} is 0, so this is not UTF-8 text but UTF-16 without a mark, or no text at all; "
            "convert it, for example with iconv -f utf-16le -t utf-8, or name the right file"
        )
    if stated == "json_lines" and head.lstrip().startswith(b"["):
        raise UserError(f"{file}: a JSON list, not one JSON object a line; rename it to end in .json")


def check_not_json(file: Path) -> None:
    """Refuse a plain text file that holds JSON rows.

    Raises:
        UserError: If it begins with a JSON object on a line of its own, or with a list of JSON objects.
    """
    with file.open("rb") as opened:
        head = opened.read(HEAD).decode("utf-8-sig", errors="replace").lstrip()
    remedy = "or set data.source.format to text to train on the JSON itself"
    if re.match(r"\[\s*\{\s*\"", head):
        raise UserError(f"{file}: a JSON list, not plain text; rename it to end in .json, {remedy}")
    if head.startswith("{"):
        line, _, after = head.partition("\n")
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            # a first row longer than what is looked at
            row = {} if not after and len(head) >= HEAD // 4 and re.match(r'\{\s*"', line) else None
        if isinstance(row, dict):
            raise UserError(f"{file}: JSON lines, not plain text; rename it to end in .jsonl, {remedy}")


def check_text(where: str, key: str, value: object, remedy: str) -> str:
    """A value of a row, which must be text that UTF-8 can hold.

    Args:
        where: File and line, or file and row.
        key: Name of the value in its row.
        value: The value.
        remedy: What to do where it is not text.

    Raises:
        UserError: If it is not.
    """
    if not isinstance(value, str):
        what = "is null" if value is None else f"is a value of type {type(value).__name__}"
        raise UserError(f"{where}: {key!r} {what}, not text; {remedy}")
    check_encodable(f"{where}: {key!r}", value)
    return value


def check_encodable(where: str, text: str) -> None:
    """Refuse a text with half of a surrogate pair.

    Raises:
        UserError: With the place in the text.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise UserError(
            f"{where} has {half} at character {error.start + 1}, which is half of a surrogate pair and no character; "
            "write the whole pair, or remove it"
        ) from error
