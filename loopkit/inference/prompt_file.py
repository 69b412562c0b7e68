"""Completions of the prompts of a JSONL file, appended to another as each ends, so that an interruption loses none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from loopkit.errors import UserError, file_errors
from loopkit.inference.complete import Completed


def read_prompts(file: Path) -> list[str]:
    """Read one prompt from each line: a JSON string, or an object with ``prompt``. Empty lines are skipped.

    Raises:
        UserError: If a line is neither, or a prompt is empty; the message contains file and line.
    """
    with file_errors(file, "read"):
        lines = file.read_text(encoding="utf-8").splitlines()
    prompts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{file}:{number}: not JSON ({error.msg}); write each prompt as a JSON string") from None
        prompt = value.get("prompt") if isinstance(value, dict) else value
        if not isinstance(prompt, str) or not prompt:
            raise UserError(f'{file}:{number}: no prompt; write a JSON string or {{"prompt": "text"}}')
        prompts.append(prompt)
    if not prompts:
        raise UserError(f"{file}: there are no prompts; write each one as a JSON string on a line of its own")
    return prompts


class CompletionLog:
    """Appends completions to a JSONL file, one line each: ``index``, ``prompt``, ``text`` and more.

    A line that an interruption cut off is removed, and its completion is generated again.

    Args:
        file: The file; an existing one is continued.
        prompts: All prompts; ``index`` counts them from 0.
        settings: What determines the completions. Lines of a file that is continued must have the same.

    Raises:
        UserError: If the file contains completions of other prompts or settings, or cannot be read or written.
    """

    def __init__(self, file: Path, prompts: Sequence[str], settings: Mapping[str, Any]) -> None:
        self.file, self.prompts, self.settings = file, prompts, dict(settings)
        self.done: set[int] = set()
        with file_errors(file, "written"):
            file.parent.mkdir(parents=True, exist_ok=True)
            content = file.read_bytes() if file.exists() else b""
        complete_lines = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(complete_lines.decode("utf-8", errors="replace").splitlines(), 1):
            self.done.add(self._check(number, line))
        with file_errors(file, "written"):
            self._stream: TextIO = file.open("a", encoding="utf-8")
            self._stream.truncate(len(complete_lines))

    def _check(self, number: int, line: str) -> int:
        """Return the index of an existing line."""
        try:
            record = json.loads(line)
            index, same = record["index"], {key: record.get(key) for key in self.settings} == self.settings
            fits = self.prompts[index] == record["prompt"]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise UserError(f"{self.file}:{number}: not a completion; choose another file with --out") from None
        if not (fits and same):
            what = "another prompt" if not fits else "other settings"
            raise UserError(f"{self.file}:{number}: a completion of {what}; choose another file with --out")
        return int(index)

    @property
    def missing(self) -> list[int]:
        """Indices of the prompts without a completion."""
        return [index for index in range(len(self.prompts)) if index not in self.done]

    def add(self, index: int, completed: Completed) -> None:
        """Append a completion."""
        record = {"index": index, "prompt": self.prompts[index], "text": completed.text}
        record |= {"num_tokens": completed.num_tokens, "finished": completed.finished}
        with file_errors(self.file, "written"):
            self._stream.write(json.dumps(record | self.settings, ensure_ascii=False) + "\n")
            self._stream.flush()
        self.done.add(index)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
