"""A cache of folders: each appears whole, is checked before it is used, and is built once by many processes.

The root is ``LOOPKIT_CACHE``, else ``loopkit`` in the XDG cache folder. An entry is named by a digest of all that it
depends on, so nothing in the cache is ever out of date; it may be deleted at any time when no run is starting.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import tempfile
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.source import DataWarning
from loopkit.errors import FileError, UserError, file_errors
from loopkit.runs.atomic import publish_folder, remove_folder

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class CacheEntry:
    """A folder of the cache that was found whole.

    Args:
        folder: Where it is.
        facts: What its builder returned.
    """

    folder: Path
    facts: dict[str, Any]


class Damaged(UserError):
    """An entry whose files are not those that were written."""


def cache_folder(cache: Path | None = None) -> Path:
    """The cache folder: as given, else ``LOOPKIT_CACHE``, else ``loopkit`` in the user's cache folder."""
    if cache is not None:
        return cache
    if own := os.environ.get("LOOPKIT_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "loopkit"


def digest(*parts: Any) -> str:
    """Name of the entry that depends on these JSON values and on nothing else."""
    # what \w and isspace() mean depends on the version of Unicode that this Python has
    versions = [FORMAT, unicodedata.unidata_version]
    return hashlib.sha256(json.dumps([*versions, *parts], sort_keys=True).encode()).hexdigest()[:32]


def entry(shelf: Path, name: str, what: str, build: Callable[[Path], dict[str, Any]]) -> CacheEntry:
    """The entry of this name, built now if it is missing or damaged.

    Processes that ask at the same time wait for the first one and share what it built. What a killed process left half
    done is removed.

    Args:
        shelf: Folder of the entries of one sort.
        name: Digest of everything that the entry depends on.
        what: What it holds, for messages.
        build: Fills an empty folder with files and returns facts about them, as JSON values.

    Raises:
        FileError: If the cache cannot be written, and the entry is not there.
    """
    found = _whole(shelf, name)
    if isinstance(found, CacheEntry):
        return found
    with _alone(shelf, name) as locked:
        found = _whole(shelf, name)
        if isinstance(found, CacheEntry):
            return found
        if found is not None:
            message = f"the cached {what} in {shelf / name} is damaged ({found}) and is built again"
            warnings.warn(message, DataWarning, stacklevel=3)
        return _built(shelf, name, build, tidy=locked)


def _whole(shelf: Path, name: str) -> CacheEntry | Damaged | None:
    folder = shelf / name
    if not folder.is_dir():
        return None
    try:
        return CacheEntry(folder, read_manifest(folder))
    except Damaged as error:
        return error


def _built(shelf: Path, name: str, build: Callable[[Path], dict[str, Any]], tidy: bool) -> CacheEntry:
    with _cache_errors(shelf, (errno.ENOSPC, errno.EDQUOT, errno.EROFS)):  # building may meet other errors of its own
        for left_over in shelf.glob(f".{name}.partial-*") if tidy else ():
            remove_folder(left_over)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.partial-", dir=shelf))
        try:
            facts = build(partial)
            write_manifest(partial, facts)
            publish_folder(partial, shelf / name)
        finally:
            remove_folder(partial)
    return CacheEntry(shelf / name, facts)


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """List the files of a folder with their sizes and SHA-256, beside facts about them."""
    files = {file.name: {"size": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(folder.iterdir())}
    body = {"format": FORMAT, "facts": facts, "files": files}
    text = json.dumps(body | {"sha256": _body_sha256(body)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The facts of a folder, once every byte of its files and of the manifest has been checked.

    Raises:
        Damaged: If anything is not as it was written; names the file.
    """
    try:
        body = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        stated = body.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise Damaged(f"{MANIFEST}: {error}") from error
    if stated != _body_sha256(body):
        raise Damaged(f"{MANIFEST}: its checksum differs")
    for name, wanted in body["files"].items():
        file = folder / name
        if not file.is_file():
            raise Damaged(f"{name} is missing")
        if file.stat().st_size != wanted["size"]:
            raise Damaged(f"{name} has {file.stat().st_size} bytes, not {wanted['size']}")
        if _sha256(file) != wanted["sha256"]:
            raise Damaged(f"{name}: its checksum differs")
    facts: dict[str, Any] = body["facts"]
    return facts


def file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of an entry, by name, as its manifest states them."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return {name: file["sha256"] for name, file in manifest["files"].items()}


def _body_sha256(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@contextmanager
def _cache_errors(shelf: Path, codes: Collection[int] | None = None) -> Iterator[None]:
    """Turn errors of the system, all or those with these codes, into a ``FileError`` about the cache."""
    try:
        with file_errors(f"the cache {shelf}", "written", "set LOOPKIT_CACHE to another folder"):
            yield
    except FileError as error:
        if codes is not None and error.errno not in codes and error.__cause__ is not None:
            raise error.__cause__ from None
        raise


@contextmanager
def _alone(shelf: Path, name: str) -> Iterator[bool]:
    """Hold the lock of an entry, which the system releases when the process ends, however it ends.

    False where the file system has no locks: two processes then build the same entry twice, and the later one stays.
    """
    with _cache_errors(shelf):
        shelf.mkdir(parents=True, exist_ok=True)
        file = (shelf / f".{name}.lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            locked = True
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            locked = False
        yield locked
