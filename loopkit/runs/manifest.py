"""The files of a folder with their sizes and SHA-256, for the manifests of checkpoints and of the data cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopkit.plural import plural

MANIFEST = "manifest.json"


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of every file below a folder, by relative path."""
    return {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def find_damage(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return what is wrong with the first file that differs from a listing, or None if all are as they were written."""
    for name, expected in files.items():
        path = folder / name
        try:
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["size"]:
                return f"{name} has {plural(path.stat().st_size, 'byte')}, {expected['size']} were written"
            if file_sha256(path) != expected["sha256"]:
                return f"{name} does not have the content that was written (SHA-256 differs)"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None
