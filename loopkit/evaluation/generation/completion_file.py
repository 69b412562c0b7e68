"""Generated completions as JSON lines, from which an interrupted evaluation resumes. No torch."""

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
    """Return a digest of everything that determines a completion."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


class CompletionFile:
    """Completions by task, request, depth and a digest of whatever else determines them.

    A completion is in the file when ``add`` returns. An incomplete last line of a killed process is dropped.

    Args:
        path: The file, which may be missing; ``None`` keeps the completions in memory only.

    Raises:
        UserError: If a complete line is damaged; the message contains its number.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._completions: dict[tuple[str, str, int, str], Completion] = {}
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        return len(self._completions)

    def get(self, task: str, key: str, depth: int, digest: str) -> Completion | None:
        """Return a completion, or ``None`` if it was not generated yet."""
        return self._completions.get((task, key, depth, digest))

    def add(self, task: str, key: str, depth: int, digest: str, completion: Completion) -> None:
        """Store a completion."""
        self._completions[task, key, depth, digest] = completion
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
        complete = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                record = json.loads(line)
                key = (record["task"], record["key"], record["depth"], record["digest"])
                self._completions[key] = Completion(**{name: record[name] for name in _FIELDS})
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"{path}:{number}: this line is not a completion ({type(error).__name__}: {error}). "
                    "Remove the line; the evaluation generates its completion again"
                ) from None
        if len(complete) < len(content):  # else the next record would be appended to an incomplete line
            with path.open("r+b") as file:
                file.truncate(len(complete))
