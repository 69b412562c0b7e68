"""A tracker. It does not import torch."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import IO

from loopkit.components.tracker import RunInfo, Tracker
from loopkit.registry import register


@register("tracker", "template")
class Template(Tracker):
    """Append metrics to a CSV file in the folder of the run, one row (step, name, value) per metric.

    Args:
        file: Name of the file.
    """

    def __init__(self, *, file: str = "template.csv") -> None:
        self.file = file
        self.open_file: IO[str] | None = None

    def open(self, run: RunInfo) -> None:
        path = run.folder / self.file
        is_new = not path.exists()
        self.open_file = path.open("a", newline="", encoding="utf-8")
        if is_new:
            csv.writer(self.open_file).writerow(["step", "name", "value"])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        assert self.open_file is not None
        csv.writer(self.open_file).writerows([step, name, value] for name, value in metrics.items())
        self.open_file.flush()

    def close(self, status: str) -> None:
        if self.open_file is not None:
            self.open_file.close()
