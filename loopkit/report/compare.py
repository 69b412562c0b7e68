"""Several runs side by side: at equal training tokens, at equal training compute, and whether that is fair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from loopkit.errors import UserError
from loopkit.report.numbers import large
from loopkit.report.record import Record

Budget = Literal["tokens", "flops"]

_SETTINGS = ("data", "split", "slice", "tokenizer", "protocol", "window", "stride", "dtype", "read_as")
"""What must be the same for two perplexities to mean the same."""


def compare(records: Sequence[Record], split: str = "validation") -> dict[str, Any]:
    """Compare the evaluations of several runs.

    A run that trained longer is not compared by its end, but by its last evaluation within what the shortest run spent.
    So the comparison needs evaluations during training; what each run had really spent is part of the result.

    Args:
        records: Two or more runs.
        split: The evaluated split.

    Returns:
        JSON: ``runs``, ``split``, ``tokens`` and ``flops`` (each ``{budget, runs: [{run, step, spent, depths}]}``,
            absent where a run's
        spending is unknown), ``differences`` (settings in which the evaluations differ, by run), and ``notes``.

    Raises:
        ValueError: If there are fewer than two runs, two of one name, or one was never evaluated on the split.
    """
    names = [record.name for record in records]
    if len(names) < 2:
        raise UserError("a comparison needs at least two runs")
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"run {', '.join(sorted(twice))} is named more than once")
    for record in records:
        if record.latest(split) is None:
            raise UserError(f"run {record.name} was not evaluated on {split}; run: loopkit eval {record.name}")
    result: dict[str, Any] = {"runs": names, "split": split}
    notes = []
    budgets: tuple[Budget, ...] = ("tokens", "flops")
    for what in budgets:
        equal = _at_equal(records, split, what)
        if isinstance(equal, str):
            notes.append(equal)
        else:
            result[what] = equal
    differences = _differences([record.latest(split) or {} for record in records], names)
    return result | {"differences": differences, "notes": notes + _warnings(differences)}


def _at_equal(records: Sequence[Record], split: str, what: Budget) -> dict[str, Any] | str:
    """The evaluations that fit the smallest budget, or why there are none."""
    spending = [_spending(record, split, what) for record in records]
    for record, points in zip(records, spending, strict=True):
        if not points:
            return f"not compared at equal {what}: metrics.jsonl of {record.name} does not say how many it spent"
    budget = min(points[-1][0] for points in spending)
    rows = []
    for record, points in zip(records, spending, strict=True):
        within = [point for point in points if point[0] <= budget]
        if not within:
            why = f"{record.name} has no evaluation within {large(budget)}; set evaluate.every"
            return f"not compared at equal {what}: {why}"
        spent, evaluation = within[-1]
        rows.append({"run": record.name, "step": evaluation["step"], "spent": spent, "depths": evaluation["depths"]})
        if "trained_depths" in evaluation:
            rows[-1]["trained_depths"] = evaluation["trained_depths"]
    return {"budget": budget, "runs": rows}


def _spending(record: Record, split: str, what: Budget) -> list[tuple[float, Mapping[str, Any]]]:
    """What had been spent at each evaluation of a split, in order."""
    points = []
    for evaluation in record.evaluations:
        if evaluation["split"] == split and "step" in evaluation:
            spent = record.spent(evaluation["step"], what)
            if spent is not None:
                points.append((spent, evaluation))
    return points


def _differences(evaluations: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for setting in _SETTINGS:
        values = [evaluation.get(setting) for evaluation in evaluations]
        if any(value != values[0] for value in values):
            found[setting] = dict(zip(names, values, strict=True))
    return found


def _warnings(differences: Mapping[str, Any]) -> list[str]:
    warnings = []
    if "tokenizer" in differences:
        warnings.append("the tokenizers differ: compare bits per byte, not perplexities per token")
    if others := [setting for setting in differences if setting != "tokenizer"]:
        warnings.append(f"the evaluations differ in {', '.join(others)}: their figures do not mean the same")
    return warnings
