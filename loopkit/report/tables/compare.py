"""The tables of a comparison, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loopkit.report.numbers import format_amount, format_count, format_losses, format_values
from loopkit.report.row import format_cells, is_measured, select_depths, value_at
from loopkit.report.tables.layout import ruled_table

_MAX_DEPTHS = 6


@dataclass(frozen=True)
class ComparedMetric:
    """A metric by which runs are compared.

    Args:
        title: Its name.
        short: A shorter name for headings of tables.
        format_column: Formats its values.
        metric: Its key in a row of ``depths``; for a distribution the key of the mean.
    """

    title: str
    short: str
    format_column: Callable[[Sequence[float | None]], list[str]]
    metric: str

    def cells(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Format the metric, one text for each row; an empty row counts as not measured."""
        return format_cells(rows, self.metric, self.format_column)


COMPARED = {
    "token_ppl": ComparedMetric("Perplexity per token", "token ppl", format_values, "token_ppl"),
    "bits_per_byte": ComparedMetric("Bits per byte", "bits per byte", format_losses, "bits_per_byte"),
    "exact_match": ComparedMetric("Share of exact answers", "exact answers", format_values, "exact_match"),
    "state_norm": ComparedMetric(
        "State norm ‖s‖₂, mean over tokens", "state norm, mean", format_values, "state_norm.mean"
    ),
}


def comparison_report(comparison: Mapping[str, Any]) -> RenderableType:
    """Lay out runs side by side, once for each budget.

    Args:
        comparison: Result of ``compare``.
    """
    parts: list[RenderableType] = []
    for budget, unit in (("tokens", "training tokens"), ("flops", "training FLOPs")):
        if budget in comparison:
            limit = format_amount(comparison[budget]["budget"])
            parts.append(Text(f"At equal {unit}: the last evaluation within {limit}", style="bold"))
            parts += [_table(comparison[budget], name) for name in measured_in(comparison[budget])]
    parts.append(Text("\n".join(f"note: {note}" for note in comparison["notes"]), style="dim"))
    return Group(*parts)


def measured_in(equal: Mapping[str, Any]) -> list[str]:
    """List the names of the metrics that any run of a comparison has at any depth.

    Args:
        equal: The comparison at one budget.
    """
    rows = [row for run in equal["runs"] for row in run["depths"]]
    return [name for name, compared in COMPARED.items() if any(is_measured(row, compared.metric) for row in rows)]


def depth_value(row: Mapping[str, Any], name: str) -> float | None:
    """Look up a finite metric of one depth; for a distribution its mean."""
    return value_at(row, COMPARED[name].metric)


def _table(equal: Mapping[str, Any], name: str) -> RenderableType:
    depths = sorted({row["depth"] for run in equal["runs"] for row in run["depths"]})
    depths = select_depths(depths, _MAX_DEPTHS)[-_MAX_DEPTHS:]
    table = ruled_table()
    table.add_column(f"{COMPARED[name].short} by depth", overflow="fold", max_width=28)
    table.add_column("step", justify="right", no_wrap=True)
    for depth in depths:
        table.add_column(str(depth), justify="right", no_wrap=True)
    rows = [{row["depth"]: row for row in run["depths"]} for run in equal["runs"]]
    columns = [COMPARED[name].cells([row.get(depth, {}) for row in rows]) for depth in depths]
    for run, line in zip(equal["runs"], zip(*columns, strict=True), strict=True):
        table.add_row(run["run"], format_count(run["step"]), *line)
    return Group(table, "")
