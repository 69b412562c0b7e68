"""The table of a sweep: the varied values, how each run ended, its metrics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import format_values
from loopkit.report.pages.markdown import table as markdown_table
from loopkit.report.row import is_measured
from loopkit.report.tables.compare import COMPARED, depth_value
from loopkit.report.tables.layout import ruled_table

Row = Mapping[str, Any]
METRICS = (("token_ppl", "token ppl"), ("bits_per_byte", "bits per byte"), ("state_norm", "state norm, mean"))
"""Metrics of the last depth, by name, with their headings."""


def sweep_report(sweep: Mapping[str, Any]) -> RenderableType:
    """Lay out a row for each run; with several seeds also their mean and standard deviation.

    Args:
        sweep: The JSON of ``loopkit sweep``.
    """
    rows = sweep["points"]
    parts: list[RenderableType] = [_table(*_cells(rows))]
    if groups := _over_seeds(rows):
        parts += [Text("\nmean ± standard deviation over seeds", style="bold"), _table(*groups)]
    return Group(*parts)


def sweep_markdown(sweep: Mapping[str, Any]) -> str:
    """Format the tables of ``sweep_report`` as Markdown."""
    tables = [_cells(sweep["points"])]
    if groups := _over_seeds(sweep["points"]):
        tables.append(groups)
    return "\n\n".join(markdown_table(head, body) for head, body in tables)


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Table:
    table = ruled_table()
    for name in head:
        table.add_column(name, overflow="fold")
    for row in body:
        table.add_row(*row)
    return table


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    keys = list(rows[0]["values"])
    last = [_last_row(row) for row in rows]
    measured = [(name, head) for name, head in METRICS if any(is_measured(row, COMPARED[name].metric) for row in last)]
    columns = [format_values([row.get("loss") for row in rows])]
    columns += [COMPARED[name].cells(last) for name, _ in measured]
    body = []
    for index, row in enumerate(rows):
        values = [_short(row["values"][key]) for key in keys]
        steps = "" if row.get("step") is None else f"{row['step']:,}"
        body.append([*values, row["status"], steps, *(column[index] for column in columns)])
    head = [key.rpartition(".")[2] for key in keys]
    return [*head, "status", "steps", "loss", *(heading for _, heading in measured)], body


def _over_seeds(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]] | None:
    """Aggregate rows that differ only in their seed; ``None`` if the seed does not vary."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if "seed" in row["values"]:
            label = ", ".join(f"{key}={_short(value)}" for key, value in row["values"].items() if key != "seed")
            groups.setdefault(label, []).append(row)
    if not any(len(group) > 1 for group in groups.values()):
        return None
    names = [(name, head) for name, head in METRICS if any(_last(row, name) is not None for row in rows)]
    body = []
    for label, group in groups.items():
        cells = [label or "all", str(len(group))]
        for name, _ in names:
            values = [value for row in group if (value := _last(row, name)) is not None]
            cells.append(f"{statistics.mean(values):.4g} ± {statistics.stdev(values):.2g}" if len(values) > 1 else "")
        body.append(cells)
    return ["point", "seeds", *(head for _, head in names)], body


def _last(row: Row, name: str) -> float | None:
    return depth_value(_last_row(row), name)


def _last_row(row: Row) -> Row:
    """Return the metrics of the last depth; empty if the run was not evaluated."""
    depths = row.get("depths")
    return depths[-1] if depths else {}


def _short(value: Any) -> str:
    text = str(value.get("type", value)) if isinstance(value, Mapping) else str(value)
    return text if len(text) <= 30 else text[:27] + "..."
