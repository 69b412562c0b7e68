"""Safetensors files byte by byte: nothing is held in memory, and a file can be written again equal to its last byte.

A file is eight bytes with the length of the header, the header in JSON, and the tensors' bytes one after another.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopkit.errors import UserError, file_errors

ITEM = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of a number, for the types that weights come in."""

LONGEST = 100_000_000
"""Bytes that a header may have, as in the format's own library."""


class TensorFileError(UserError):
    """A file that is not what safetensors are; the message names it."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file.

    Args:
        dtype: ``F32``, ``BF16`` and so on.
        shape: Its sizes.
        start: First byte, from the end of the header.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def count(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes in it."""
        return self.count * ITEM[self.dtype]


@dataclass(frozen=True)
class Header:
    """What a file holds.

    Args:
        text: The header as it stands in the file, filling blanks included.
        entries: The tensors in the order of their bytes.
    """

    text: str
    entries: Mapping[str, TensorEntry]

    @classmethod
    def of(cls, tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]) -> Header:
        """The header of a new file.

        Args:
            tensors: Type and shape of each, by name. Wider types come first, so that all of them are aligned.
            metadata: Texts about the file.
        """
        entries: dict[str, TensorEntry] = {}
        start = 0
        for name in sorted(tensors, key=lambda name: (-ITEM[tensors[name][0]], name)):
            entries[name] = TensorEntry(*tensors[name], start)
            start += entries[name].size
        record = {"__metadata__": dict(metadata)} | {
            name: {"dtype": e.dtype, "shape": list(e.shape), "data_offsets": [e.start, e.start + e.size]}
            for name, e in entries.items()
        }
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        return cls(text + " " * (-len(text.encode()) % 8), entries)

    @classmethod
    def parse(cls, text: str, where: str) -> Header:
        """Read a header, and see that its tensors lie one after another.

        Raises:
            TensorFileError: If it is damaged, or holds a type that weights do not come in.
        """
        try:
            record: dict[str, Any] = json.loads(text, object_pairs_hook=_each_once)
            record.pop("__metadata__", None)
            found = {name: _entry(name, facts, where) for name, facts in record.items()}
            ends = {name: int(facts["data_offsets"][1]) for name, facts in record.items()}
        except TensorFileError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise TensorFileError(f"{where}: its header is damaged ({error}); get the file again") from error
        at = 0
        ordered = dict(sorted(found.items(), key=lambda item: (item[1].start, ends[item[0]])))
        for name, entry in ordered.items():
            if entry.start != at or ends[name] != at + entry.size:
                raise TensorFileError(f"{where}: the bytes of {name!r} are not where its shape puts them")
            at = ends[name]
        return cls(text, ordered)

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.size for entry in self.entries.values())


class TensorFile:
    """A file, mapped into memory.

    Args:
        path: The file.

    Raises:
        TensorFileError: If it is not whole, or no safetensors at all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with file_errors(path, "read"), path.open("rb") as file:
            total = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if total < 8 or length > min(LONGEST, total - 8):
                raise TensorFileError(f"{path}: not a safetensors file, or cut off; get it again")
            try:
                text = file.read(length).decode()
            except UnicodeDecodeError as error:
                raise TensorFileError(f"{path}: not a safetensors file ({error.reason}); get it again") from error
        self.header = Header.parse(text, str(path))
        if total != 8 + length + self.header.size:
            told = 8 + length + self.header.size
            raise TensorFileError(f"{path}: it has {total:,} bytes, its header tells of {told:,}; get it again")
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r", offset=0)[8 + length :]

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Bytes of the numbers ``start`` to ``stop`` (exclusive) of a tensor.

        Shapes: uint8 ``[bytes]``, a view of the file.
        """
        entry = self.header.entries[name]
        item = ITEM[entry.dtype]
        stop = entry.count if stop is None else stop
        return self._bytes[entry.start + start * item : entry.start + stop * item]


def write_tensors(path: Path, header: Header, pieces: Callable[[str], Iterable[np.ndarray]]) -> str:
    """Write a file, one piece of a tensor after another.

    Args:
        path: The file; overwritten.
        header: What it is to hold.
        pieces: Gives the bytes of a tensor, by its name.

    Returns:
        SHA-256 of the file.
    """
    digest = hashlib.sha256()
    text = header.text.encode()
    with path.open("wb") as file:

        def put(part: bytes | np.ndarray) -> None:
            file.write(part)  # type: ignore[arg-type]
            digest.update(part)  # type: ignore[arg-type]

        put(len(text).to_bytes(8, "little"))
        put(text)
        for name, entry in header.entries.items():
            before = file.tell()
            for piece in pieces(name):
                put(piece)
            written = file.tell() - before
            assert written == entry.size, f"{name}: {written} bytes written, {entry.size} promised"
    return digest.hexdigest()


def _entry(name: str, facts: Mapping[str, Any], where: str) -> TensorEntry:
    if facts["dtype"] not in ITEM:
        raise TensorFileError(
            f"{where}: {name!r} has type {facts['dtype']}; weights are read in {', '.join(ITEM)}: "
            "a quantised model must be given in one of these"
        )
    shape = tuple(int(size) for size in facts["shape"])
    if any(size < 0 for size in shape):
        raise UserError(f"{name}: a negative size")
    return TensorEntry(str(facts["dtype"]), shape, int(facts["data_offsets"][0]))


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise UserError("a name stands in it twice")
    return record
