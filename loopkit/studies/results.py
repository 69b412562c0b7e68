"""``NAME.results.json``: the results of a study, from which tables, plots and the gallery are generated.

``profiles`` maps a scale (``full`` without a profile) to ``date``, ``arms`` and ``claims``; an arm has a ``label`` and
its runs by seed (``seeds``). A run contains what ``run_entry`` returns; an older file may lack ``curve``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loopkit.errors import UserError, file_errors
from loopkit.report import training_curve
from loopkit.runs import read_metrics, read_provenance, write_json
from loopkit.studies.judge import ClaimVerdict, Rows
from loopkit.studies.runs import PlannedRun
from loopkit.studies.study import LoadedStudy

Json = dict[str, Any]
FULL = "full"
"""Key of a study's results without a profile."""


def run_entry(run: PlannedRun, measured: Mapping[str, Any]) -> Json:
    """Build the entry of one run: its origin, cost, training curve and measurements.

    ``curve`` is a ``training_curve``: ``step`` and ``loss`` averaged over neighbouring steps, and ``loops``, the number
    of steps with each number of loops.
    """
    provenance = read_provenance(run.folder.provenance)
    lines = read_metrics(run.folder.metrics)
    return {
        "run": run.folder.name,
        "recipe": run.recipe.name,
        "recipe_hash": run.recipe.hash,
        "parameters": provenance["parameters"]["unique"],
        "steps": lines[-1]["step"],
        "tokens": lines[-1]["tokens"],
        "train_seconds": round(sum(line["step_s"] for line in lines), 1),
        "machine": provenance["machine"],
        "packages": provenance["packages"],
        "curve": training_curve(lines),
        "evaluation": measured["evaluation"],
        **({"early_exit": _without_trials(measured["early_exit"])} if "early_exit" in measured else {}),
    }


def _without_trials(benchmark: Mapping[str, Any]) -> Json:
    """Remove the thresholds that were not chosen; the run's folder contains them."""
    exits = {}
    for name, row in benchmark["exits"].items():
        calibration = {key: value for key, value in row.get("calibration", {}).items() if key != "tried"}
        exits[name] = {**row, "calibration": calibration}
    return {**benchmark, "exits": exits}


def rows_by_arm(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[int, Rows]]:
    """Return the rows of every evaluation, by arm and seed."""
    return {
        arm: {int(seed): entry["evaluation"]["depths"] for seed, entry in seeds.items()} for arm, seeds in arms.items()
    }


def _read(path: Path) -> Json:
    with file_errors(path, "read"):
        content = path.read_bytes()
    try:
        results: Json = json.loads(content)
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); remove it, or choose another file with --results") from error
    return results


def write_results(
    study: LoadedStudy,
    profile: str | None,
    date: str,
    arms: Mapping[str, Any],
    verdicts: Sequence[ClaimVerdict],
    path: Path,
) -> Json:
    """Write the results at one scale, and keep those of other scales in the file."""
    previous = _read(path) if path.is_file() else {}
    record: Json = {
        "date": date,
        "arms": {name: {"label": study.arms[name].label or name, "seeds": dict(seeds)} for name, seeds in arms.items()},
        "claims": {verdict.name: verdict.to_json() for verdict in verdicts},
    }
    profiles = {**previous.get("profiles", {}), (profile or FULL): record}
    write_json(path, {"study": study.name, "title": study.title, "paper": study.paper, "profiles": profiles})
    return record
