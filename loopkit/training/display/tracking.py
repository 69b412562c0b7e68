"""Trackers of a run; an error of a tracker does not stop training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from loopkit.components.tracker import RunInfo, Tracker
from loopkit.registry import MissingPackage, Spec


class Trackers:
    """Pass metrics to every tracker of the recipe; a tracker that raises is switched off, with one message.

    Args:
        specs: Trackers by name; empty on ranks after the first.
        say: Prints a message.
        strict: Whether a missing package is an error; otherwise the tracker is switched off.

    Raises:
        MissingPackage: If a package is missing; the message names the extra to install.
    """

    def __init__(self, specs: Mapping[str, Spec], say: Callable[[str], None], *, strict: bool = False) -> None:
        self._say, self._strict = say, strict
        self._active: dict[str, Tracker] = {}
        for name, spec in specs.items():
            self._try(name, lambda name=name, spec=spec: self._active.__setitem__(name, spec.build()))  # type: ignore[misc]

    def open(self, run: RunInfo) -> None:
        """Open every tracker at the start of a session."""
        self._call_each(lambda tracker: tracker.open(run))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Log a line of metrics, flattened, without missing values."""
        numbers = dict(flatten(metrics))
        self._call_each(lambda tracker: tracker.log(step, numbers))

    def close(self, status: str) -> None:
        """Close every tracker at the end of a session."""
        self._call_each(lambda tracker: tracker.close(status))

    def _call_each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._active.items()):
            self._try(name, lambda tracker=tracker: call(tracker))  # type: ignore[misc]

    def _try(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            if self._strict and isinstance(error, MissingPackage):
                raise MissingPackage(f"{error}, or leave it out with --set trackers.{name}=false") from None
            self._active.pop(name, None)
            self._say(f"tracker {name} is off for the rest of this run: {type(error).__name__}: {error}")


def flatten(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """Flatten metrics to (name, number); items of a list are counted from 1, as loops are: ``ce/1``."""
    numbers: list[tuple[str, float]] = []
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            numbers += flatten(value, name + "/")
        elif isinstance(value, list | tuple):
            numbers += flatten({str(index): item for index, item in enumerate(value, 1)}, name + "/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            numbers.append((name, value))
    return numbers
