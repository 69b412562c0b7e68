"""``loopkit sweep``: trains every point of a recipe's sweep, and collects the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.recipe.sweep import Point
from loopkit.report import read_record
from loopkit.runs import RunFolder
from loopkit.studies.runs import PlannedRun, Say, TrainingFailed, finish, numbered


@dataclass(frozen=True)
class SweepRuns:
    """The runs of a sweep.

    Args:
        points: The points of the sweep.
        args: Shared arguments of ``loopkit train``: recipe, profiles, overrides and further options.
        root: Folder of the runs.
    """

    points: Sequence[Point]
    args: tuple[str, ...]
    root: Path

    def runs(self) -> list[PlannedRun]:
        """Return the run of each point."""
        return [
            PlannedRun(
                arm=point.name,
                seed=point.recipe.seed,
                recipe=point.recipe,
                args=(*self.args, *(arg for override in point.overrides for arg in ("--set", override))),
                folder=RunFolder(self.root / point.name),
            )
            for point in self.points
        ]


def run_sweep(sweep: SweepRuns, say: Say = print) -> dict[str, Any]:
    """Train missing runs, resume interrupted ones, and collect the figures of all runs.

    A failed run is reported in the table and does not stop the others; the next call trains it again.

    Args:
        sweep: The sweep, with validated points.
        say: Called with a progress message.

    Returns:
        JSON: ``points``, each with ``run``, ``values``, ``status``, and the figures of its last evaluation.

    Raises:
        UserError: If a folder contains a run of another recipe; this is checked before any run starts.
        KeyboardInterrupt: If training was interrupted.
    """
    runs = sweep.runs()
    for run in runs:
        run.state  # noqa: B018  (raises for a folder of another recipe before training)
    rows = []
    for number, (point, run) in enumerate(zip(sweep.points, runs, strict=True), 1):
        status = "finished"
        say_numbered = numbered(say, number, len(runs))
        try:
            finish(run, say_numbered)
        except TrainingFailed as error:
            status = f"failed, exit code {error.code}"
            say_numbered(str(error))
        rows.append({"run": run.folder.name, "values": dict(point.values), "status": status, **_figures(run.folder)})
    return {"recipe": sweep.points[0].recipe.path and str(sweep.points[0].recipe.path), "points": rows}


def _figures(folder: RunFolder) -> dict[str, Any]:
    """Return the last step, tokens and loss, and the depths of the last evaluation, if they exist."""
    record = read_record(folder)
    figures: dict[str, Any] = {}
    if record.lines:
        figures |= {name: record.lines[-1].get(name) for name in ("step", "tokens", "loss")}
    if (latest := record.latest()) is not None:
        figures |= {"split": latest["split"], "depths": latest["depths"]}
    return figures
