"""Numbers as a reader wants them: few digits, separators, powers of ten only where nothing else fits."""

from __future__ import annotations

import math
from collections.abc import Sequence

ABSENT = "-"


def count(value: float | None) -> str:
    """A count with separators: ``12,345``."""
    return ABSENT if value is None else f"{value:,.0f}"


def figure(value: float | None, digits: int = 4) -> str:
    """A measured number with about this many significant digits.

    Args:
        value: Any number; ``None`` is written as a dash.
        digits: Significant digits.
    """
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "not finite"
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 1e6 or size < 1e-3:
        return f"{value:.{max(digits - 2, 1)}e}"
    decimals = max(digits - 1 - math.floor(math.log10(size)), 0)
    return f"{value:,.{decimals}f}"


def figures(values: Sequence[float | None]) -> list[str]:
    """A column of measured numbers, with the same decimals in every row where their sizes allow it."""
    sizes = [abs(value) for value in values if value]
    if not sizes or not 1e-3 <= min(sizes) <= max(sizes) < 1e4 or max(sizes) > 1e4 * min(sizes):
        return [figure(value) for value in values]
    decimals = max(3 - math.floor(math.log10(min(sizes))), 0)
    return [ABSENT if value is None else f"{value:,.{decimals}f}" for value in values]


def nats(values: Sequence[float | None]) -> list[str]:
    """A column of losses: four decimals, or powers of ten where those would not fit."""
    return [figure(value) if value is None or not abs(value) < 1e4 else f"{value:.4f}" for value in values]


def amounts(values: Sequence[float | None]) -> list[str]:
    """A column of large amounts."""
    return [large(value) for value in values]


def large(value: float | None) -> str:
    """A large amount with a metric prefix: ``16.4k``, ``1.65G``."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "not finite"
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def size(count: float) -> str:
    """Bytes in the binary unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.4g} TiB"
