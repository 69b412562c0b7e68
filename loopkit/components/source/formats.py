"""The format of a data file, from its suffix, and checks of its first bytes."""

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
"""Format of each suffix, in lower case."""

HEAD = 2**16
"""Number of bytes that are checked before a file is read."""

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
    (b"version https://git-lfs", "a Git LFS pointer to a file that is not downloaded", "fetch it with git lfs pull"),
    (b"\xff\xfe\x00\x00", "UTF-32 text", "convert it with iconv -f utf-32 -t utf-8"),
    (b"\xff\xfe", "UTF-16 text", "convert it with iconv -f utf-16 -t utf-8"),
    (b"\xfe\xff", "UTF-16 text", "convert it with iconv -f utf-16 -t utf-8"),
)
COMPRESSED = frozenset({".gz", ".zst", ".bz2", ".xz", ".zip"})


def format_of(file: Path, default: Format) -> Format:
    """Return the format of a file's suffix, or ``default`` for other suffixes."""
    return SUFFIXES.get(file.suffix.lower(), default)


def check_content(file: Path, stated: Format) -> None:
    """Raise a ``UserError`` if the first bytes of a file contradict the format."""
    with file.open("rb") as opened:
        head = opened.read(HEAD)
    for signature, description, remedy in _SIGNATURES:
        if head.startswith(signature) and not (signature == _PARQUET and stated == "parquet"):
            raise UserError(f"{file}: this is {description}; {remedy}")
    if stated == "parquet":
        return
    if (offset := head.find(b"\0")) >= 0:
        raise UserError(
            f"{file}: byte {offset} is 0, so this is not UTF-8 text but binary, or UTF-16 without a byte order mark; "
            "convert it, for example with iconv -f utf-16le -t utf-8, or set another file"
        )
    if stated == "json_lines" and head.lstrip().startswith(b"["):
        raise UserError(f"{file}: a JSON list, not one JSON object per line; rename it to end in .json")


def check_not_json(file: Path) -> None:
    """Raise a ``UserError`` if a plain text file starts with a line that is a JSON object, or a list of them."""
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
            # the first row may be longer than the head
            row = {} if not after and len(head) >= HEAD // 4 and re.match(r'\{\s*"', line) else None
        if isinstance(row, dict):
            raise UserError(f"{file}: JSON lines, not plain text; rename it to end in .jsonl, {remedy}")


def check_text(where: str, key: str, value: object, remedy: str) -> str:
    """Return a value of a row if it is text that UTF-8 can encode.

    Args:
        where: File and line, or file and row.
        key: Name of the value in its row.
        value: The value.
        remedy: How to fix a value that is not text, for the message.

    Raises:
        UserError: If it is not.
    """
    if not isinstance(value, str):
        problem = "is null" if value is None else f"is a value of type {type(value).__name__}"
        raise UserError(f"{where}: {key!r} {problem}, not text; {remedy}")
    check_encodable(f"{where}: {key!r}", value)
    return value


def check_encodable(where: str, text: str) -> None:
    """Raise a ``UserError`` if a text contains half of a surrogate pair."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise UserError(
            f"{where} has {half} at character {error.start + 1}, which is half of a surrogate pair; "
            "write the whole pair, or remove it"
        ) from error
