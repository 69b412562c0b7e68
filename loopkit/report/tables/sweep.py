"""The table of a sweep: what varied, how each run ended, what it measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import figures
from loopkit.report.row import is_measured
from loopkit.report.tables.compare import QUANTITIES, depth_value

Row = Mapping[str, Any]
FIGURES = (("token_ppl", "token ppl"), ("bits_per_byte", "bits per byte"), ("state_norm", "state norm, mean"))
"""Of the last depth, where they were measured."""


def sweep_report(found: Mapping[str, Any]) -> RenderableType:
    """A row for each run; with several seeds also their mean and standard deviation.

    Args:
        found: What ``loopkit sweep --json`` prints.
    """
    rows = found["points"]
    parts: list[RenderableType] = [_table(*_cells(rows))]
    if groups := _over_seeds(rows):
        parts += [Text("\nover seeds: mean ± standard deviation", style="bold"), _table(*groups)]
    return Group(*parts)


def sweep_markdown(found: Mapping[str, Any]) -> str:
    """The same as Markdown."""
    tables = [_cells(found["points"])]
    if groups := _over_seeds(found["points"]):
        tables.append(groups)
    return "\n\n".join("\n".join([_line(head), _line(["---"] * len(head)), *map(_line, body)]) for head, body in tables)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    for row in body:
        table.add_row(*row)
    return table


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    keys = list(rows[0]["values"])
    last = [_last_row(row) for row in rows]
    shown = [(name, head) for name, head in FIGURES if any(is_measured(row, QUANTITIES[name].figure) for row in last)]
    columns = [figures([row.get("loss") for row in rows])]
    columns += [QUANTITIES[name].cells(last) for name, _ in shown]
    body = []
    for number, row in enumerate(rows):
        values = [_short(row["values"][key]) for key in keys]
        steps = "" if row.get("step") is None else f"{row['step']:,}"
        body.append([*values, row["status"], steps, *(column[number] for column in columns)])
    head = [key.rpartition(".")[2] for key in keys]
    return [*head, "status", "steps", "loss", *(name for _, name in shown)], body


def _over_seeds(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]] | None:
    """Rows that differ in their seed alone, as one; None where no seeds vary."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if "seed" in row["values"]:
            label = ", ".join(f"{key}={_short(value)}" for key, value in row["values"].items() if key != "seed")
            groups.setdefault(label, []).append(row)
    if not any(len(group) > 1 for group in groups.values()):
        return None
    names = [(name, head) for name, head in FIGURES if any(_last(row, name) is not None for row in rows)]
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
    """Figures of the last depth; empty where nothing was evaluated."""
    depths = row.get("depths")
    return depths[-1] if depths else {}


def _short(value: Any) -> str:
    text = str(value.get("type", value)) if isinstance(value, Mapping) else str(value)
    return text if len(text) <= 30 else text[:27] + "..."
