"""The judged claims of a study: tables for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loopkit.plural import plural
from loopkit.report.numbers import format_value
from loopkit.report.pages.markdown import table as markdown_table
from loopkit.report.row import NOT_FINITE, is_not_finite, value_at
from loopkit.report.tables.layout import plain_table

RELATIONS = {
    "below": "below {bound}",
    "above": "above {bound}",
    "times_at_least": "at least {bound} times",
    "times_at_most": "at most {bound} times",
    "equal_within": "within {percent}",
    "lower_by": "lower by {percent}",
    "differs_below": "differs by less than {bound}",
    "magnitude_below": "magnitude below {bound}",
}
IN_PERCENT = frozenset({"equal_within", "lower_by"})
VERDICTS = {True: "holds", False: "does not hold", None: "not judged"}


def claims_report(results: Mapping[str, Any]) -> RenderableType:
    """Lay out every claim with the paper's value, the measured value and the verdict.

    Args:
        results: One profile of a results file.
    """
    table = plain_table()
    table.add_column("claim", ratio=4)
    table.add_column("paper", ratio=3)
    table.add_column("measured", ratio=3)
    table.add_column("verdict", no_wrap=True)
    for claim in results["claims"].values():
        verdict = VERDICTS[claim.get("holds")]
        styled = Text(verdict, style={"holds": "green", "does not hold": "red"}.get(verdict, "yellow"))
        table.add_row(claim["says"] + (" *" if claim["must"] else ""), claim["paper"], measurement(claim), styled)
        table.add_row()
    return Group(table, Text(summary(results)), Text("* must hold, else the implementation is wrong"))


def summary(results: Mapping[str, Any]) -> str:
    """Count the claims that hold, in one line."""
    outcomes = [claim.get("holds") for claim in results["claims"].values()]
    parts = [f"{outcomes.count(True)} of {len(outcomes)} claims hold"]
    parts += [f"{outcomes.count(False)} do not"] if False in outcomes else []
    parts += [f"{outcomes.count(None)} could not be judged"] if None in outcomes else []
    return ", ".join(parts)


def measurement(claim: Mapping[str, Any]) -> str:
    """Format the measured value with both sides of the claim and the required bound."""
    if "measured" not in claim:
        return claim.get("why", "not measured")
    relation, bound = claim["relation"], claim["bound"]
    value = f"{claim['measured']:.1%}" if relation in IN_PERCENT else format_value(claim["measured"])
    required = RELATIONS[relation].format(bound=format_value(bound), percent=f"{bound:.0%}")
    required += " somewhere" if claim.get("somewhere") else ""
    sides = ""
    if "right" in claim:
        sides = f" ({format_value(claim['left'])} against {format_value(claim['right'])})"
    return f"{value}{sides}; required: {required}"


def claims_markdown(results: Mapping[str, Any]) -> str:
    """Format every claim as a Markdown table."""
    rows = [
        (claim["says"], claim["paper"], measurement(claim), VERDICTS[claim.get("holds")])
        for claim in results["claims"].values()
    ]
    return f"{markdown_table(('claim', 'paper', 'measured', 'verdict'), rows)}\n\n{summary(results)}."


def arms_markdown(results: Mapping[str, Any]) -> str:
    """Format a row for each run: norm of the last state, perplexity at the first and the last depth, cost."""
    heading = ("arm", "state norm", "perplexity, first depth", "perplexity, last depth", "tokens", "training, s")
    rows = []
    for arm in results["arms"].values():
        for seed, entry in arm["seeds"].items():
            first, last = entry["evaluation"]["depths"][0], entry["evaluation"]["depths"][-1]
            cells = [
                f"{arm['label']} (seed {seed})",
                _cell(last, "state_norm.mean"),
                *(_cell(row, "token_ppl") for row in (first, last)),
                f"{entry['tokens']:,}",
                format_value(entry["train_seconds"]),
            ]
            rows.append(cells)
    return markdown_table(heading, rows, numbers=True)


def _cell(row: Mapping[str, Any], name: str) -> str:
    """Format a metric of a row; empty if it was not measured."""
    value = value_at(row, name)
    return NOT_FINITE if is_not_finite(row, name) else "" if value is None else format_value(value)


def radii_markdown(results: Mapping[str, Any]) -> str:
    """Format the largest spectral radius of every run at each measured depth, with its residual; empty if none."""
    rows: dict[str, dict[int, str]] = {}
    for arm in results["arms"].values():
        for seed, entry in arm["seeds"].items():
            measured = {
                row["depth"]: row["spectral_radius"] for row in entry["evaluation"]["depths"] if _has_radius(row)
            }
            rows[f"{arm['label']} (seed {seed})"] = {
                depth: f"{radius['max']:.3f} ± {radius['residual']:.1%}" for depth, radius in measured.items()
            }
    depths = sorted({depth for row in rows.values() for depth in row})
    if not depths:
        return ""
    heading = ("largest spectral radius after", *(plural(int(depth), "loop") for depth in depths))
    lines = [(name, *(row.get(depth, "") for depth in depths)) for name, row in rows.items()]
    note = "± is the change from the third to the last quarter of the power method's steps."
    return f"{markdown_table(heading, lines, numbers=True)}\n\n{note}"


def _has_radius(row: Mapping[str, Any]) -> bool:
    return {"max", "residual"} <= row.get("spectral_radius", {}).keys()
