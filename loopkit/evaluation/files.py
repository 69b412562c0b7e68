"""Where the results of a run's evaluations lie: ``eval/step-00000600-validation-1a2b3c.json``. No torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from loopkit.errors import UserError, file_errors
from loopkit.evaluation.result import Result
from loopkit.runs import RunFolder, write_json

_SETTINGS = ("slice", "dtype", "protocol", "window", "stride", "batch", "read_as", "units")
_TASKS = ("tasks",)  # where texts were generated; a result without them keeps the name it always had


def write_result(result: Result, folder: RunFolder) -> Path:
    """Write a result into a run's folder, whole or not at all.

    Its name ends in six digits of a hash of the depths and settings: the same evaluation again replaces the old file,
    another one lies beside it.

    Args:
        result: Its origin tells the optimizer step.
        folder: The run.

    Raises:
        ValueError: If the step is not known.
    """
    if result.origin.step is None:
        raise UserError("a result without its optimizer step has no place in a run's folder")
    found = result.to_json()
    settings = (
        {name: found.get(name) for name in _SETTINGS}
        | {name: found[name] for name in _TASKS if name in found}
        | {"depths": [row["depth"] for row in found["depths"]]}
    )
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:6]
    path = folder.evaluations / f"{_stem(result.origin.step)}-{result.conditions.split}-{digest}.json"
    with file_errors(path.parent, "made"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found)
    return path


def results_of(folder: RunFolder, step: int) -> list[Path]:
    """The results of one optimizer step, if it was evaluated."""
    return sorted(folder.evaluations.glob(f"{_stem(step)}-*.json"))


def completions_of(folder: RunFolder, step: int) -> Path:
    """The file of the texts that one optimizer step's weights wrote."""
    return folder.evaluations / f"{_stem(step)}-completions.jsonl"


def _stem(step: int) -> str:
    return f"step-{step:08d}"
