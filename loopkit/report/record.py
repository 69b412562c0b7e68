"""The content of a run folder, read for a report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.errors import FileError, UserError, file_errors
from loopkit.recipe.migration.renames import read_protocol
from loopkit.runs import RunFolder, read_metrics, read_provenance
from loopkit.runs.checkpoint import Weights

Json = Mapping[str, Any]

SETTINGS = ("data", "split", "slice", "tokenizer", "protocol", "window", "stride", "dtype", "read_as")
"""Settings that must be equal for two perplexities to be comparable."""


@dataclass(frozen=True)
class Record:
    """The files of one run.

    Args:
        name: Name of the run.
        lines: Lines of ``metrics.jsonl``.
        evaluations: Results in ``eval/``, ordered by optimizer step, then by time of writing.
        provenance: Versions, machine, commands; empty if the file does not exist.
    """

    name: str
    lines: Sequence[Json]
    evaluations: Sequence[Json]
    provenance: Json

    @property
    def commands(self) -> list[str]:
        """The command line of each training session."""
        return [_format_command(session["command"]) for session in self.provenance.get("sessions", ())]

    def spent(self, step: int, budget: str) -> float | None:
        """Look up the tokens or FLOPs of training up to a step; ``None`` if ``metrics.jsonl`` lacks them.

        Args:
            step: Completed optimizer steps.
            budget: ``tokens`` or ``flops``, fields that count from the start of the run.
        """
        if step == 0:
            return 0
        values = [line[budget] for line in self.lines if line["step"] <= step and line.get(budget) is not None]
        is_reached = any(line["step"] >= step for line in self.lines)
        return values[-1] if values and is_reached else None

    def latest(self, split: str | None = None, weights: Weights = "trained") -> Json | None:
        """Return the evaluation of the latest checkpoint on a split, or on any, with the chosen weights."""
        matching = [
            result
            for result in self.evaluations
            if (split is None or result["split"] == split) and weights_of(result) == weights
        ]
        return matching[-1] if matching else None

    def averaged(self, split: str | None = None) -> tuple[Json, Json] | None:
        """Return the latest evaluation of averaged weights, after that of the trained weights which is comparable.

        Comparable evaluations have the step and the settings in common; None if there are none.
        """
        if (average := self.latest(split, "ema")) is None:
            return None
        for result in reversed(self.evaluations):
            same = all(result.get(key) == average.get(key) for key in ("step", *SETTINGS))
            if weights_of(result) == "trained" and same:
                return result, average
        return None


def weights_of(result: Json) -> str:
    """Return which weights of its checkpoint an evaluation measured: ``trained`` or ``ema``."""
    return str(result.get("weights", "trained"))


def _format_command(arguments: Sequence[str]) -> str:
    """Format a command line, with ``loopkit`` for the path of its entry point."""
    program = Path(arguments[0])
    is_loopkit = program.name == "loopkit" or program.parts[-2:] == ("loopkit", "__main__.py")
    return shlex.join(["loopkit" if is_loopkit else arguments[0], *arguments[1:]])


def read_record(folder: RunFolder) -> Record:
    """Read the files of a run that reports need.

    Raises:
        ValueError: If a file is damaged; the message names it.
    """
    return Record(
        name=folder.name,
        lines=read_metrics(folder.metrics) if folder.metrics.is_file() else [],
        evaluations=_read_evaluations(folder.evaluations),
        provenance=read_provenance(folder.provenance) if folder.provenance.is_file() else {},
    )


def _read_evaluations(folder: Path) -> list[Json]:
    """Read all evaluations, ordered by step; within one step by time of writing."""
    results = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
        try:
            with file_errors(path, "read"):
                result = json.loads(path.read_text(encoding="utf-8"))
        except FileError:
            raise
        except ValueError as error:
            raise UserError(f"{path} is not JSON ({error}); delete it, or evaluate again") from None
        results.append(read_protocol(result))
    return sorted(results, key=lambda result: result.get("step", 0))
