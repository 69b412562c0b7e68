"""Write files and folders completely or not at all, even if the machine loses power."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from loopkit.errors import UserError, file_errors


def write_text(path: Path, text: str) -> None:
    """Replace a file's content; readers see the old text or the new, never a part of it."""
    partial = path.with_name(f".{path.name}.partial")
    with file_errors(path, "written"):
        _write(partial, text)
        partial.replace(path)
        sync_folder(path.parent)


def _write(partial: Path, text: str) -> None:
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk needs the room
        partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file, indented, with a newline at its end; not-a-number is refused."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """JSON as this project writes it."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def check_writable(folder: Path, remedy: str) -> None:
    """Check that a folder is writable before the work whose results go there.

    Args:
        folder: The folder; if it does not exist, its nearest existing parent is checked.
        remedy: What to do if it is not.

    Raises:
        UserError: If it is not.
    """
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UserError(f"{folder}: no file can be written there ({error.strerror}); {remedy}") from error


def publish_folder(partial: Path, final: Path) -> None:
    """Give a finished folder its name, after everything in it has reached the disk.

    Args:
        partial: The folder as it was filled, on the same file system.
        final: Its name from now on; a folder already there is replaced and removed afterwards.
    """
    for path in sorted(partial.rglob("*")):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(partial)
    old = final.with_name(f".{final.name}.replaced")
    remove_folder(old)
    if final.exists():
        final.rename(old)
    partial.rename(final)
    sync_folder(final.parent)
    remove_folder(old)


def remove_folder(path: Path) -> None:
    """Delete a folder and all it holds; nothing happens if it is not there."""
    if not path.exists():
        return
    for child in path.iterdir():
        if child.is_dir() and not child.is_symlink():
            remove_folder(child)
        else:
            child.unlink()
    path.rmdir()


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
