"""``metrics.jsonl``: one line of JSON per logged optimizer step, and one per event.

A line with the key ``event`` records what went wrong at a step and what was done about it
(``loopkit/training/step/health.py`` defines its form); every other line is the measurement of a step. Lines are in
chronological order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from loopkit.errors import UserError, file_errors
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


EVENT = "event"
"""The key that makes a line the record of an event."""
REWOUND_TO = "to_step"
"""The key of an event after which the run continued from an earlier step."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the measurement of every logged step; a last line cut off by a killed process does not count.

    Raises:
        ValueError: If a line is not JSON, naming file and line.
    """
    return [record for record in _records(path) if EVENT not in record]


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return what went wrong, and what was done about it, in the order in which it happened.

    Raises:
        ValueError: If a line is not JSON, naming file and line.
    """
    return [record for record in _records(path) if EVENT in record]


def cut_metrics(path: Path, step: int, *, rewinding: bool = False) -> None:
    """Drop what happened after an optimizer step, so that no step is logged twice.

    Args:
        path: The metrics file.
        step: Step from which the run continues.
        rewinding: Keep the rewinds that came back to this very step. A run that is resumed there drops them, because
            it will find the same reason for them again.
    """
    if path.exists():
        remaining = [line for line in _whole_lines(path) if _past(json.loads(line), step, rewinding)]
        write_text(path, "".join(line + "\n" for line in remaining))


def _past(record: Mapping[str, Any], step: int, rewinding: bool) -> bool:
    """Check whether a line describes something before a step. A checkpoint newer than the one a rewind came back to was
    written after the rewind."""
    if REWOUND_TO in record:
        return bool(record[REWOUND_TO] < step + rewinding)
    return bool(record["step"] <= step)


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _whole_lines(path)]


def _whole_lines(path: Path) -> list[str]:
    with file_errors(path, "read"):
        text = path.read_text(encoding="utf-8", errors="replace")  # a byte that is not UTF-8 is reported as its line
    lines = text[: text.rfind("\n") + 1].splitlines()
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}:{number}: this line is not JSON ({error.msg}); remove the line") from None
    return lines
