"""``checkpoints/best.json``: which checkpoint stays because its evaluation was the best so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from loopkit.errors import UserError
from loopkit.runs.atomic import write_json
from loopkit.runs.checkpoint import Checkpoint, checkpoints

BEST = "best.json"


@dataclass(frozen=True)
class BestFigure:
    """The figure by which a checkpoint is the best.

    Args:
        step: Optimizer steps done.
        figure: What was compared.
        depth: At how many loops.
        value: How much it was.
    """

    step: int
    figure: str
    depth: int
    value: float


def read_best(folder: Path, figure: str, until: int) -> BestFigure | None:
    """Return the best checkpoint so far, or None where there is none that still counts.

    Args:
        folder: Where the checkpoints lie.
        figure: What is compared; a mark for another figure does not count.
        until: Where the run stands: a later checkpoint is not of its past. So it is after falling back on an older one.
    """
    try:
        mark = BestFigure(**json.loads((folder / BEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # never written, or damaged: the next evaluation writes it again
        return None
    there = Checkpoint(folder / f"step-{mark.step:08d}", mark.step) in checkpoints(folder)
    return mark if there and mark.figure == figure and mark.step <= until else None


def write_best(folder: Path, mark: BestFigure) -> None:
    """Let another checkpoint be the best."""
    write_json(folder / BEST, asdict(mark))


def better(new: BestFigure, old: BestFigure | None, goal: Literal["min", "max"]) -> bool:
    """Check whether an evaluation beats the best so far; the older one stays where both are as good."""
    if old is None or old.depth != new.depth:
        return True
    return new.value < old.value if goal == "min" else new.value > old.value


def figure_of(rows: Sequence[Mapping[str, Any]], figure: str, depth: int | None) -> tuple[int, float]:
    """Return a figure at a depth of an evaluation.

    Args:
        rows: One map for each depth, ``depth`` and ``trained`` among its keys.
        figure: Its name; a dot leads into a map: ``state_norm.mean``.
        depth: At how many loops; None takes the deepest that was trained, or the deepest of all.

    Returns:
        The depth and the value.

    Raises:
        ValueError: If it was not evaluated there, with what was.
    """
    fitting = [row for row in rows if row["depth"] == depth] if depth else [r for r in rows if r.get("trained", True)]
    if not fitting and depth:
        depths = ", ".join(str(row["depth"]) for row in rows)
        raise UserError(f"train.checkpoint.best.depth is {depth}, but the depths evaluated are {depths}")
    row = max(fitting or rows, key=lambda row: row["depth"])
    value: Any = row
    for key in figure.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        depths = ", ".join(sorted(set(row) - {"depth", "trained", "not_finite"}))
        raise UserError(
            f"train.checkpoint.best: the evaluation has no number {figure!r} at depth {row['depth']}; {depths}"
        )
    return int(row["depth"]), float(value)
