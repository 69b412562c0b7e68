"""Every text written under evaluation, one JSON object a line: an interrupted evaluation goes on from it. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loopkit.components.task import Completion
from loopkit.errors import UserError, file_errors

_FIELDS = ("text", "num_tokens", "finished")


def completion_digest(settings: Mapping[str, Any]) -> str:
    """One name for everything that determines a text."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


class CompletionFile:
    """Texts by task, request, depth and a digest of whatever else determines them.

    A text is in the file as soon as ``add`` returns. What a killed process left of its last line is dropped.

    Args:
        path: The file, which need not be there; ``None`` keeps the texts in memory alone.

    Raises:
        ValueError: If another line than the last is damaged, naming it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._known: dict[tuple[str, str, int, str], Completion] = {}
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, task: str, key: str, depth: int, digest: str) -> Completion | None:
        """The text, if it is known."""
        return self._known.get((task, key, depth, digest))

    def add(self, task: str, key: str, depth: int, digest: str, completion: Completion) -> None:
        """Keep a text."""
        self._known[task, key, depth, digest] = completion
        if self.path is None:
            return
        record = {"task": task, "key": key, "depth": depth, "digest": digest, **asdict(completion)}
        with file_errors(self.path, "written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")

    def _read(self, path: Path) -> None:
        with file_errors(path, "read"):
            content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                at = (record["task"], record["key"], record["depth"], record["digest"])
                self._known[at] = Completion(**{name: record[name] for name in _FIELDS})
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"{path}:{number}: this line is no completion ({type(error).__name__}: {error}); "
                    "remove it, and what it held is generated again"
                ) from None
        if len(whole) < len(content):  # else the next text would be appended to half a line
            with path.open("r+b") as file:
                file.truncate(len(whole))
