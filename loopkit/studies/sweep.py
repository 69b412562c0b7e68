"""``loopkit sweep``: every point of a recipe's sweep trained, and what came of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.recipe.sweep import Point
from loopkit.report import read_record
from loopkit.runs import RunFolder
from loopkit.studies.runs import Failed, Planned, Say, finish


@dataclass(frozen=True)
class SweepRuns:
    """The runs of a sweep.

    Args:
        points: What varies.
        words: Recipe, profiles, overrides and further options that all share, as ``loopkit train`` takes them.
        root: Folder of the runs.
    """

    points: Sequence[Point]
    words: tuple[str, ...]
    root: Path

    def runs(self) -> list[Planned]:
        """The run of each point."""
        return [
            Planned(
                arm=point.name,
                seed=point.recipe.seed,
                recipe=point.recipe,
                words=(*self.words, *(word for text in point.overrides for word in ("--set", text))),
                folder=RunFolder(self.root / point.name),
            )
            for point in self.points
        ]


def run_sweep(sweep: SweepRuns, say: Say = print) -> dict[str, Any]:
    """Train what is missing, go on with what was interrupted, and gather what all runs measured.

    A run that fails is told in the table and does not stop the others; the next call takes it up again.

    Args:
        sweep: Its points have been checked.
        say: Told what is being done.

    Returns:
        JSON: ``points``, each with ``run``, ``values``, ``status``, and the figures of its last evaluation.

    Raises:
        ValueError: If a folder holds a run of another recipe; nothing has been started then.
        KeyboardInterrupt: If it was interrupted.
    """
    runs = sweep.runs()
    for run in runs:
        run.state  # noqa: B018  (a folder of another recipe is said before hours are spent)
    rows = []
    for number, (point, run) in enumerate(zip(sweep.points, runs, strict=True), 1):
        status = "finished"
        try:
            finish(run, lambda text, number=number: say(f"[{number}/{len(runs)}] {text}"))  # type: ignore[misc]
        except Failed as error:
            status = f"failed, exit code {error.code}"
            say(f"[{number}/{len(runs)}] {error}")
        rows.append({"run": run.folder.name, "values": dict(point.values), "status": status, **_figures(run.folder)})
    return {"recipe": sweep.points[0].recipe.path and str(sweep.points[0].recipe.path), "points": rows}


def _figures(folder: RunFolder) -> dict[str, Any]:
    """Steps, loss and the depths of the last evaluation, as far as there are any."""
    record = read_record(folder)
    found: dict[str, Any] = {}
    if record.lines:
        found |= {name: record.lines[-1].get(name) for name in ("step", "tokens", "loss")}
    if (latest := record.latest()) is not None:
        found |= {"split": latest["split"], "depths": latest["depths"]}
    return found
