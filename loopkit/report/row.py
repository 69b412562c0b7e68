"""Metrics in one row of an evaluation: measured, not measured, or measured and not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

NOT_FINITE = "not finite"
"""How tables and plots print a metric that was measured as infinite or NaN."""

LARGEST_DRAWN = 1e100
"""Plots name larger magnitudes and do not draw them, because the margins of the axis would overflow."""

Row = Mapping[str, Any]
FormatColumn = Callable[[Sequence[float | None]], list[str]]


def value_at(row: Row, metric: str) -> float | None:
    """Look up a finite metric of a row; ``None`` if it is absent.

    Args:
        row: One entry of an evaluation's ``depths``.
        metric: Its name; a dot leads into a map: ``state_norm.mean``.
    """
    value: Any = row
    for name in metric.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def drawable_value(row: Row, metric: str) -> float | None:
    """Look up a metric of a row that a plot can draw; ``None`` if it is absent or too large."""
    value = value_at(row, metric)
    return None if value is None or abs(value) > LARGEST_DRAWN else value


def drawable_points(rows: Sequence[Row], metric: str) -> list[tuple[int, float]]:
    """List depth and value of a metric for the rows that a plot can draw."""
    return [(row["depth"], value) for row in rows if (value := drawable_value(row, metric)) is not None]


def is_not_finite(row: Row, metric: str) -> bool:
    """Whether a metric was measured and is not finite."""
    return metric in row.get("not_finite", ())


def is_measured(row: Row, metric: str) -> bool:
    """Whether a metric was measured, finite or not."""
    return value_at(row, metric) is not None or is_not_finite(row, metric)


def format_cells(rows: Sequence[Row], metric: str, format_column: FormatColumn) -> list[str]:
    """Format a column: finite values with ``format_column``, all others as ``not finite``."""
    texts = format_column([value_at(row, metric) for row in rows])
    return [NOT_FINITE if is_not_finite(row, metric) else text for row, text in zip(rows, texts, strict=True)]


def select_depths(depths: Sequence[int], limit: int, always: Sequence[int] = ()) -> list[int]:
    """Select depths that fit a table or plot: all if there are few, else the powers of two, ``always``, and the last.

    Args:
        depths: In ascending order.
        limit: Number of depths up to which all are kept.
        always: Depths to keep in any case.
    """
    if len(depths) <= limit:
        return list(depths)
    return [depth for depth in depths if depth & (depth - 1) == 0 or depth in always or depth == depths[-1]]
