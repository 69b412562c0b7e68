"""Files of a run's evaluation results: ``eval/step-00000600-validation-1a2b3c.json``. No torch.

Results of averaged weights are ``ema-step-...``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from loopkit.errors import UserError, file_errors
from loopkit.evaluation.result import Result
from loopkit.runs import RunFolder, write_json
from loopkit.runs.checkpoint import Weights

_SETTINGS = ("slice", "dtype", "protocol", "window", "stride", "batch", "read_as", "units")
_TASKS = ("tasks",)  # only in results with completions, so that other results keep their file names


def write_result(result: Result, folder: RunFolder) -> Path:
    """Write a result into a run's folder atomically.

    The file name ends in six digits of a hash of the depths and settings: repeating an evaluation replaces its file,
    and another evaluation gets a file of its own.

    Args:
        result: Its origin contains the optimizer step.
        folder: The run.

    Raises:
        UserError: If the origin has no optimizer step.
    """
    if result.origin.step is None:
        raise UserError("the result has no optimizer step, which its file name needs; set origin.step")
    record = result.to_json()
    settings = (
        {name: record.get(name) for name in _SETTINGS}
        | {name: record[name] for name in _TASKS if name in record}
        | {"depths": [row["depth"] for row in record["depths"]]}
    )
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:6]
    path = (
        folder.evaluations
        / f"{_stem(result.origin.step, result.origin.weights)}-{result.conditions.split}-{digest}.json"
    )
    with file_errors(path.parent, "made"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    return path


def results_of(folder: RunFolder, step: int, weights: Weights = "trained") -> list[Path]:
    """Return the result files of one optimizer step; empty if these weights were not evaluated."""
    return sorted(folder.evaluations.glob(f"{_stem(step, weights)}-*.json"))


def completions_of(folder: RunFolder, step: int, weights: Weights = "trained") -> Path:
    """Return the file of the completions that the weights of one optimizer step generated."""
    return folder.evaluations / f"{_stem(step, weights)}-completions.jsonl"


def _stem(step: int, weights: str | None = None) -> str:
    return ("ema-" if weights == "ema" else "") + f"step-{step:08d}"
