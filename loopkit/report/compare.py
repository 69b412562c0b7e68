"""Compare runs at equal training tokens and at equal training compute, and name the settings that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from loopkit.errors import UserError
from loopkit.report.numbers import format_amount
from loopkit.report.record import SETTINGS, Record, weights_of

Budget = Literal["tokens", "flops"]


def compare(records: Sequence[Record], split: str = "validation") -> dict[str, Any]:
    """Compare the evaluations of several runs, with their trained weights.

    Each run is represented by its last evaluation within the budget of the cheapest run, so the comparison needs
    evaluations during training. The result states what each run had spent at that evaluation.

    Args:
        records: Two or more runs.
        split: The evaluated split.

    Returns:
        JSON: ``runs``, ``split``, ``tokens`` and ``flops`` (each ``{budget, runs: [{run, step, spent, depths}]}``,
            absent if a run lacks the count), ``differences`` (settings in which the evaluations differ, by run), and
            ``notes``.

    Raises:
        UserError: If there are fewer than two runs, two have one name, or one was not evaluated on the split.
    """
    names = [record.name for record in records]
    if len(names) < 2:
        raise UserError(f"a comparison needs at least two runs, not {len(names)}")
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UserError(f"{', '.join(sorted(repeated))}: named more than once; name each run once")
    for record in records:
        if record.latest(split) is None:
            raise UserError(f"run {record.name} was not evaluated on {split}; run: loopkit eval {record.name}")
    result: dict[str, Any] = {"runs": names, "split": split}
    notes = []
    budgets: tuple[Budget, ...] = ("tokens", "flops")
    for budget in budgets:
        comparison = _compare_at_equal(records, split, budget)
        if isinstance(comparison, str):
            notes.append(comparison)
        else:
            result[budget] = comparison
    differences = _differences([record.latest(split) or {} for record in records], names)
    return result | {"differences": differences, "notes": notes + _warnings(differences)}


def _compare_at_equal(records: Sequence[Record], split: str, budget: Budget) -> dict[str, Any] | str:
    """Collect each run's last evaluation within the smallest budget, or return why that is impossible."""
    spending = [_spending(record, split, budget) for record in records]
    for record, points in zip(records, spending, strict=True):
        if not points:
            return f"not compared at equal {budget}: metrics.jsonl of {record.name} does not count them"
    limit = min(points[-1][0] for points in spending)
    rows = []
    for record, points in zip(records, spending, strict=True):
        within = [point for point in points if point[0] <= limit]
        if not within:
            reason = f"{record.name} has no evaluation within {format_amount(limit)}; set evaluate.every"
            return f"not compared at equal {budget}: {reason}"
        spent, evaluation = within[-1]
        rows.append({"run": record.name, "step": evaluation["step"], "spent": spent, "depths": evaluation["depths"]})
        if "trained_depths" in evaluation:
            rows[-1]["trained_depths"] = evaluation["trained_depths"]
    return {"budget": limit, "runs": rows}


def _spending(record: Record, split: str, budget: Budget) -> list[tuple[float, Mapping[str, Any]]]:
    """Pair each evaluation of a split with the budget spent until then, in order."""
    points = []
    for evaluation in record.evaluations:
        if evaluation["split"] == split and "step" in evaluation and weights_of(evaluation) == "trained":
            spent = record.spent(evaluation["step"], budget)
            if spent is not None:
                points.append((spent, evaluation))
    return points


def _differences(evaluations: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    differences = {}
    for setting in SETTINGS:
        values = [evaluation.get(setting) for evaluation in evaluations]
        if any(value != values[0] for value in values):
            differences[setting] = dict(zip(names, values, strict=True))
    return differences


def _warnings(differences: Mapping[str, Any]) -> list[str]:
    warnings = []
    if "tokenizer" in differences:
        warnings.append("the tokenizers differ: compare bits per byte, not perplexities per token")
    if settings := [setting for setting in differences if setting != "tokenizer"]:
        warnings.append(f"the evaluations differ in {', '.join(settings)}: their values are not comparable")
    return warnings
