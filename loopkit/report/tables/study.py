"""The claims of a study, judged: as a table for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import figure
from loopkit.report.row import NOT_FINITE, is_lost, value_at

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
VERDICTS = {True: "holds", False: "does not", None: "not judged"}


def claims_report(found: Mapping[str, Any]) -> RenderableType:
    """Every claim with what the paper says, what was measured, and the verdict.

    Args:
        found: One profile of a results file.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("claim", ratio=4)
    table.add_column("paper", ratio=3)
    table.add_column("measured", ratio=3)
    table.add_column("verdict", no_wrap=True)
    for claim in found["claims"].values():
        verdict = VERDICTS[claim.get("holds")]
        styled = Text(verdict, style={"holds": "green", "does not": "red"}.get(verdict, "yellow"))
        table.add_row(claim["says"] + (" *" if claim["must"] else ""), claim["paper"], measurement(claim), styled)
        table.add_row()
    return Group(table, Text(summary(found)), Text("* the build is wrong where this does not hold"))


def summary(found: Mapping[str, Any]) -> str:
    """How many claims hold, in one line."""
    outcomes = [claim.get("holds") for claim in found["claims"].values()]
    parts = [f"{outcomes.count(True)} of {len(outcomes)} claims hold"]
    parts += [f"{outcomes.count(False)} do not"] if False in outcomes else []
    parts += [f"{outcomes.count(None)} could not be judged"] if None in outcomes else []
    return ", ".join(parts)


def measurement(claim: Mapping[str, Any]) -> str:
    """What was measured, with both sides and the bound it is held against."""
    if "measured" not in claim:
        return claim.get("why", "not measured")
    relation, bound = claim["relation"], claim["bound"]
    value = f"{claim['measured']:.1%}" if relation in IN_PERCENT else figure(claim["measured"])
    asked = RELATIONS[relation].format(bound=figure(bound), percent=f"{bound:.0%}")
    asked += " somewhere" if claim.get("somewhere") else ""
    sides = ""
    if "right" in claim:
        sides = f" ({figure(claim['left'])} against {figure(claim['right'])})"
    return f"{value}{sides}; asked: {asked}"


def claims_markdown(found: Mapping[str, Any]) -> str:
    """The same as a Markdown table."""
    lines = ["| claim | paper | measured | verdict |", "| --- | --- | --- | --- |"]
    for claim in found["claims"].values():
        cells = (claim["says"], claim["paper"], measurement(claim), VERDICTS[claim.get("holds")])
        escaped = " | ".join(cell.replace("|", r"\|") for cell in cells)
        lines.append(f"| {escaped} |")
    return "\n".join([*lines, "", summary(found) + "."])


def arms_markdown(found: Mapping[str, Any]) -> str:
    """A row for each arm: norm of the last state, perplexity at the first and the last depth, cost."""
    head = ("arm", "state norm", "perplexity, first depth", "perplexity, last depth", "tokens", "training, s")
    lines = [f"| {' | '.join(head)} |", "| --- | --: | --: | --: | --: | --: |"]
    for arm in found["arms"].values():
        for seed, entry in arm["seeds"].items():
            first, last = entry["evaluation"]["depths"][0], entry["evaluation"]["depths"][-1]
            cells = [
                f"{arm['label']} (seed {seed})",
                _cell(last, "state_norm.mean"),
                *(_cell(row, "token_ppl") for row in (first, last)),
                f"{entry['tokens']:,}",
                figure(entry["train_seconds"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], name: str) -> str:
    """A figure of a row; empty where it was not measured."""
    value = value_at(row, name)
    return NOT_FINITE if is_lost(row, name) else "" if value is None else figure(value)


def radii_markdown(found: Mapping[str, Any]) -> str:
    """The largest spectral radius of every arm at each depth where it was measured, with how far it had settled."""
    rows: dict[str, dict[int, str]] = {}
    for arm in found["arms"].values():
        for seed, entry in arm["seeds"].items():
            measured = {row["depth"]: row["spectral_radius"] for row in entry["evaluation"]["depths"] if _radius(row)}
            rows[f"{arm['label']} (seed {seed})"] = {
                depth: f"{radius['max']:.3f} ± {radius['residual']:.1%}" for depth, radius in measured.items()
            }
    depths = sorted({depth for row in rows.values() for depth in row})
    if not depths:
        return ""
    lines = [f"| largest spectral radius after | {' | '.join(f'{depth} loops' for depth in depths)} |"]
    lines.append("| --- |" + " --: |" * len(depths))
    lines += [f"| {name} | {' | '.join(row.get(depth, '') for depth in depths)} |" for name, row in rows.items()]
    said = "± is the change from the third to the last quarter of the power method's steps."
    return "\n".join([*lines, "", said])


def _radius(row: Mapping[str, Any]) -> bool:
    return {"max", "residual"} <= row.get("spectral_radius", {}).keys()
