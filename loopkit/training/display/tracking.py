"""Trackers of a run: each on its own, none able to stop training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from loopkit.components.tracker import RunInfo, Tracker
from loopkit.registry import MissingPackage, Spec


class Trackers:
    """Hand metrics to every tracker of the recipe; one that raises is left out from then on, with one line to the user.

    Args:
        specs: Trackers by name; empty on ranks after the first.
        say: Prints a sentence.
        strict: Whether a tracker whose package is not installed is an error; else it is left out like one that fails.

    Raises:
        MissingPackage: If so, naming the extra to install.
    """

    def __init__(self, specs: Mapping[str, Spec], say: Callable[[str], None], *, strict: bool = False) -> None:
        self._say, self._strict = say, strict
        self._live: dict[str, Tracker] = {}
        for name, spec in specs.items():
            self._try(name, lambda name=name, spec=spec: self._live.__setitem__(name, spec.build()))  # type: ignore[misc]

    def open(self, run: RunInfo) -> None:
        """Begin."""
        self._each(lambda tracker: tracker.open(run))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Pass on one line of metrics, flat, without what was not measured."""
        numbers = dict(flatten(metrics))
        self._each(lambda tracker: tracker.log(step, numbers))

    def close(self, status: str) -> None:
        """End."""
        self._each(lambda tracker: tracker.close(status))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._live.items()):
            self._try(name, lambda tracker=tracker: act(tracker))  # type: ignore[misc]

    def _try(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            if self._strict and isinstance(error, MissingPackage):
                raise MissingPackage(f"{error}, or leave it out with --set trackers.{name}=false") from None
            self._live.pop(name, None)
            self._say(f"tracker {name} is off for the rest of this run: {type(error).__name__}: {error}")


def flatten(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """Numbers by name; a list is counted from 1, as loops are: ``ce/1``."""
    found: list[tuple[str, float]] = []
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found += flatten(value, name + "/")
        elif isinstance(value, list | tuple):
            found += flatten({str(place): item for place, item in enumerate(value, 1)}, name + "/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.append((name, value))
    return found
