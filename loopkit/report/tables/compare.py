"""The tables of a comparison, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import count, figures, large, nats
from loopkit.report.row import cells, is_measured, value_at

_MOST_DEPTHS = 6


@dataclass(frozen=True)
class ComparedFigure:
    """A figure by which runs are compared.

    Args:
        title: What it is, written out.
        short: The same where room is short.
        write: A column of it as text.
        figure: Where it stands in a row of ``depths``; of a distribution its mean.
    """

    title: str
    short: str
    write: Callable[[Sequence[float | None]], list[str]]
    figure: str

    def cells(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """A column of it, row by row; a row that is empty was not measured."""
        return cells(rows, self.figure, self.write)


QUANTITIES = {
    "token_ppl": ComparedFigure("Perplexity per token", "token ppl", figures, "token_ppl"),
    "bits_per_byte": ComparedFigure("Bits per byte", "bits per byte", nats, "bits_per_byte"),
    "exact_match": ComparedFigure("Share of exact answers", "exact answers", figures, "exact_match"),
    "state_norm": ComparedFigure("State norm ‖s‖₂, mean over tokens", "state norm, mean", figures, "state_norm.mean"),
}


def comparison_report(comparison: Mapping[str, Any]) -> RenderableType:
    """Runs side by side, once for each budget.

    Args:
        comparison: Result of ``compare``.
    """
    parts: list[RenderableType] = []
    for what, unit in (("tokens", "training tokens"), ("flops", "training FLOPs")):
        if what in comparison:
            budget = comparison[what]["budget"]
            parts.append(Text(f"At equal {unit}: the last evaluation within {large(budget)}", style="bold"))
            parts += [_table(comparison[what], quantity) for quantity in measured_in(comparison[what])]
    parts.append(Text("\n".join(f"note: {note}" for note in comparison["notes"]), style="dim"))
    return Group(*parts)


def measured_in(equal: Mapping[str, Any]) -> list[str]:
    """Names of the quantities that any run of a comparison has at any depth.

    Args:
        equal: The comparison at one budget.
    """
    rows = [row for run in equal["runs"] for row in run["depths"]]
    return [name for name, quantity in QUANTITIES.items() if any(is_measured(row, quantity.figure) for row in rows)]


def depth_value(row: Mapping[str, Any], name: str) -> float | None:
    """A finite quantity of one depth; of a distribution its mean."""
    return value_at(row, QUANTITIES[name].figure)


def _table(equal: Mapping[str, Any], name: str) -> RenderableType:
    depths = sorted({row["depth"] for run in equal["runs"] for row in run["depths"]})
    if len(depths) > _MOST_DEPTHS:  # the powers of two and the last tell the story
        depths = [depth for depth in depths if depth & (depth - 1) == 0 or depth == depths[-1]][-_MOST_DEPTHS:]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column(f"{QUANTITIES[name].short} by depth", overflow="fold", max_width=28)
    table.add_column("step", justify="right", no_wrap=True)
    for depth in depths:
        table.add_column(str(depth), justify="right", no_wrap=True)
    rows = [{row["depth"]: row for row in run["depths"]} for run in equal["runs"]]
    columns = [QUANTITIES[name].cells([row.get(depth, {}) for row in rows]) for depth in depths]
    for run, line in zip(equal["runs"], zip(*columns, strict=True), strict=True):
        table.add_row(run["run"], count(run["step"]), *line)
    return Group(table, "")
