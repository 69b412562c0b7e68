"""``metrics.jsonl``: one line of JSON per logged optimizer step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from loopkit.runs.atomic import write_text


class MetricsLog:
    """Append lines to a metrics file; each has left this process when ``write`` returns.

    Args:
        path: The file.
        write: False drops every line, for ranks after the first.
    """

    def __init__(self, path: Path, *, write: bool = True) -> None:
        self._file = path.open("a", encoding="utf-8") if write else None

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line.

        Raises:
            ValueError: If a number in it is not finite; JSON has no word for it.
        """
        text = json.dumps(record, allow_nan=False) + "\n"
        if self._file is not None:
            self._file.write(text)
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a metrics file; a last line cut off by a killed process does not count.

    Raises:
        ValueError: If a line is not JSON, naming file and line.
    """
    return [json.loads(line) for line in _whole_lines(path)]


def cut_metrics(path: Path, step: int) -> None:
    """Drop the lines after an optimizer step, so that a resumed run does not tell the same step twice."""
    if path.exists():
        kept = [line for line in _whole_lines(path) if json.loads(line)["step"] <= step]
        write_text(path, "".join(line + "\n" for line in kept))


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path}:{number}: this line is not JSON ({error.msg}); the file was changed by hand"
            ) from None
    return lines
