"""Trained and averaged weights (``train.ema``) side by side: one row per depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loopkit.report.numbers import format_count
from loopkit.report.tables.depth import Column, columns_of
from loopkit.report.tables.layout import ruled_table

Evaluation = Mapping[str, Any]
"""The JSON of ``loopkit eval``."""

MAX_METRICS = 3
"""Metrics that fit a terminal twice; the files of the evaluations have all of them."""


def averaged_report(trained: Evaluation, average: Evaluation) -> RenderableType:
    """Lay out both evaluations for a terminal.

    Args:
        trained: Evaluation of the weights of a step.
        average: Evaluation of their average, with the same settings.
    """
    headings, lines = averaged_lines(trained, average)
    table = ruled_table()
    for heading in headings:
        table.add_column(heading.replace(", ", "\n"), justify="right", no_wrap=True, vertical="bottom")
    for line in lines:
        table.add_row(*line)
    return Group("", Text(describe_pair(trained, average), style="bold"), "", table)


def describe_pair(trained: Evaluation, average: Evaluation) -> str:
    """Name what the table compares."""
    step = f" after step {format_count(trained['step'])}" if "step" in trained else ""
    return f"Trained weights{step}, and their exponential moving average (ema)"


def averaged_lines(trained: Evaluation, average: Evaluation) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Format headings and lines: the depth, then each metric of the trained and of the averaged weights.

    Depths that only one of the evaluations has are left out.

    Args:
        trained: Evaluation of the weights of a step.
        average: Evaluation of their average, with the same settings.
    """
    by_depth = {row["depth"]: row for row in average["depths"]}
    rows = [row for row in trained["depths"] if row["depth"] in by_depth]
    columns = [column for column in columns_of(rows) if column.metric != "tokens_per_s"][:MAX_METRICS]
    headings = ("depth", *(name for column in columns for name in (column.heading, f"{column.heading}, ema")))
    cells = [_cells(column, rows, [by_depth[row["depth"]] for row in rows]) for column in columns]
    lines = [(str(row["depth"]), *(text for pair in cells for text in pair[index])) for index, row in enumerate(rows)]
    return headings, lines


def _cells(column: Column, trained: list[Evaluation], average: list[Evaluation]) -> list[tuple[str, str]]:
    """Format a metric of both evaluations together, so that both have the same number of digits."""
    texts = column.cells([*trained, *average])
    return list(zip(texts[: len(trained)], texts[len(trained) :], strict=True))
