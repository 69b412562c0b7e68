"""A cache of folders: published atomically, verified before use, and built once by concurrent processes.

The root is ``LOOPKIT_CACHE``, else ``loopkit`` in the XDG cache folder. The name of an entry is a digest of all its
inputs, so entries never go stale. The cache may be deleted at any time when no run is starting.
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
from loopkit.runs.manifest import MANIFEST, find_damage, list_files

FORMAT = 1


@dataclass(frozen=True)
class CacheEntry:
    """A verified folder of the cache.

    Args:
        folder: Its path.
        facts: The return value of its builder.
    """

    folder: Path
    facts: dict[str, Any]


class Damaged(UserError):
    """The files of an entry differ from its manifest."""


def cache_folder(cache: Path | None = None) -> Path:
    """Return ``cache`` if set, else ``LOOPKIT_CACHE``, else ``loopkit`` in the user's cache folder."""
    if cache is not None:
        return cache
    if path := os.environ.get("LOOPKIT_CACHE"):
        return Path(path).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "loopkit"


def digest(*parts: Any) -> str:
    """Compute the name of the entry that depends on these JSON values."""
    # the meaning of \w and isspace() depends on the Unicode version of this Python
    versions = [FORMAT, unicodedata.unidata_version]
    return hashlib.sha256(json.dumps([*versions, *parts], sort_keys=True).encode()).hexdigest()[:32]


def entry(shelf: Path, name: str, what: str, build: Callable[[Path], dict[str, Any]]) -> CacheEntry:
    """Return the entry of this name; build it if it is missing or damaged.

    Concurrent processes wait for the first one and share its result. Partial folders of killed processes are removed.

    Args:
        shelf: Folder of the entries of one kind.
        name: Digest of all inputs of the entry.
        what: Description of the entry, for messages.
        build: Fills an empty folder with files and returns facts about them, as JSON values.

    Raises:
        FileError: If the entry is missing and the cache cannot be written.
    """
    result = _load(shelf, name)
    if isinstance(result, CacheEntry):
        return result
    with _entry_lock(shelf, name) as locked:
        result = _load(shelf, name)
        if isinstance(result, CacheEntry):
            return result
        if result is not None:
            message = f"the cached {what} in {shelf / name} is damaged ({result}) and is built again"
            warnings.warn(message, DataWarning, stacklevel=3)
        return _build(shelf, name, build, remove_partial=locked)


def _load(shelf: Path, name: str) -> CacheEntry | Damaged | None:
    folder = shelf / name
    if not folder.is_dir():
        return None
    try:
        return CacheEntry(folder, read_manifest(folder))
    except Damaged as error:
        return error


def _build(shelf: Path, name: str, build: Callable[[Path], dict[str, Any]], remove_partial: bool) -> CacheEntry:
    with _cache_errors(shelf, (errno.ENOSPC, errno.EDQUOT, errno.EROFS)):  # ``build`` may raise other errors
        for abandoned in shelf.glob(f".{name}.partial-*") if remove_partial else ():
            remove_folder(abandoned)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.partial-", dir=shelf))
        try:
            facts = build(partial)
            write_manifest(partial, facts)
            publish_folder(partial, shelf / name)
        finally:
            remove_folder(partial)
    return CacheEntry(shelf / name, facts)


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write a manifest: facts, and the sizes and SHA-256 of the files of a folder."""
    body = {"format": FORMAT, "facts": facts, "files": list_files(folder)}
    text = json.dumps(body | {"sha256": _body_sha256(body)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Verify the manifest and every file of a folder, and return its facts.

    Raises:
        Damaged: If a file differs from the manifest.
    """
    try:
        body = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        stated = body.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise Damaged(f"{MANIFEST}: {error}") from error
    if stated != _body_sha256(body):
        raise Damaged(f"{MANIFEST}: its checksum differs")
    if damage := find_damage(folder, body["files"]):
        raise Damaged(damage)
    facts: dict[str, Any] = body["facts"]
    return facts


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of an entry, by name, from its manifest."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return {name: file["sha256"] for name, file in manifest["files"].items()}


def _body_sha256(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@contextmanager
def _cache_errors(shelf: Path, codes: Collection[int] | None = None) -> Iterator[None]:
    """Convert system errors, all or those with these codes, to a ``FileError`` about the cache."""
    try:
        with file_errors(f"the cache {shelf}", "written", "set LOOPKIT_CACHE to another folder"):
            yield
    except FileError as error:
        if codes is not None and error.errno not in codes and error.__cause__ is not None:
            raise error.__cause__ from None
        raise


@contextmanager
def _entry_lock(shelf: Path, name: str) -> Iterator[bool]:
    """Hold the lock of an entry; the system releases it when the process ends.

    Yields False if the file system has no locks: concurrent processes then build the entry twice, and the last wins.
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
