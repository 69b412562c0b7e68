"""Figures of one row of an evaluation: measured, not measured, or measured and not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

NOT_FINITE = "not finite"
"""How tables and plots write a figure that was measured and is infinite or not a number."""

LARGEST_DRAWN = 1e100
"""Magnitude beyond which a figure is named in a plot and not drawn: the margins of its axis would overflow."""

Row = Mapping[str, Any]
Write = Callable[[Sequence[float | None]], list[str]]


def value_at(row: Row, figure: str) -> float | None:
    """A finite figure of a row, or ``None``.

    Args:
        row: One entry of an evaluation's ``depths``.
        figure: Its name; a dot leads into a map: ``state_norm.mean``.
    """
    found: Any = row
    for name in figure.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def drawn_at(row: Row, figure: str) -> float | None:
    """A figure of a row that a plot has room for, or ``None``."""
    value = value_at(row, figure)
    return None if value is None or abs(value) > LARGEST_DRAWN else value


def is_lost(row: Row, figure: str) -> bool:
    """Whether a figure was measured and is not finite."""
    return figure in row.get("not_finite", ())


def is_measured(row: Row, figure: str) -> bool:
    """Whether a figure was measured, finite or not."""
    return value_at(row, figure) is not None or is_lost(row, figure)


def cells(rows: Sequence[Row], figure: str, write: Write) -> list[str]:
    """A column as text: the finite figures as ``write`` has them, the others by name."""
    written = write([value_at(row, figure) for row in rows])
    return [NOT_FINITE if is_lost(row, figure) else cell for row, cell in zip(rows, written, strict=True)]
