"""Trackers: where metrics also go, beside ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunInfo:
    """What a tracker may know of the run.

    Args:
        name: Name of the run.
        folder: Its folder.
        recipe: The resolved recipe as plain values.
        provenance: What was recorded about code and machine.
        resumed_from: Optimizer steps already done when this process started; 0 for a fresh run.
    """

    name: str
    folder: Path
    recipe: Mapping[str, Any]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    resumed_from: int = 0


class MissingPackage(ValueError):
    """A tracker needs a package that is not installed."""


class Tracker:
    """Where metrics also go; only the first rank has one.

    An exception raised here disables the tracker for the rest of the run, with one line to the user: a service that is
    down never stops training.
    """

    def open(self, run: RunInfo) -> None:
        """Begin; called once before the first step."""
        raise NotImplementedError

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one optimizer step, flat: ``ce/1``, ``state_norm/4``, ``eval/2/loss``.

        Args:
            step: Optimizer steps done.
            metrics: Finite numbers by name.
        """
        raise NotImplementedError

    def close(self, status: str) -> None:
        """End.

        Args:
            status: ``finished``, ``interrupted`` or ``failed``.
        """
        raise NotImplementedError
