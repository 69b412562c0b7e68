"""Format numbers: few digits, thousands separators, and powers of ten only where nothing else fits."""

from __future__ import annotations

import math
from collections.abc import Sequence

ABSENT = "-"


def format_count(value: float | None) -> str:
    """Format a count with separators: ``12,345``."""
    return ABSENT if value is None else f"{value:,.0f}"


def format_value(value: float | None, digits: int = 4) -> str:
    """Format a measured value with about this many significant digits.

    Args:
        value: Any number; ``None`` becomes a dash.
        digits: Significant digits.
    """
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "not finite"
    magnitude = abs(value)
    if value == 0:
        return "0"
    if magnitude >= 1e6 or magnitude < 1e-3:
        return f"{value:.{max(digits - 2, 1)}e}"
    decimals = max(digits - 1 - math.floor(math.log10(magnitude)), 0)
    return f"{value:,.{decimals}f}"


def format_values(values: Sequence[float | None]) -> list[str]:
    """Format a column of measured values, with equal decimals in every row if their magnitudes allow it."""
    sizes = [abs(value) for value in values if value]
    if not sizes or not 1e-3 <= min(sizes) <= max(sizes) < 1e4 or max(sizes) > 1e4 * min(sizes):
        return [format_value(value) for value in values]
    decimals = max(3 - math.floor(math.log10(min(sizes))), 0)
    return [ABSENT if value is None else f"{value:,.{decimals}f}" for value in values]


def format_losses(values: Sequence[float | None]) -> list[str]:
    """Format a column of losses: four decimals, or powers of ten for large ones."""
    return [format_value(value) if value is None or not abs(value) < 1e4 else f"{value:.4f}" for value in values]


def format_amounts(values: Sequence[float | None]) -> list[str]:
    """Format a column of large amounts."""
    return [format_amount(value) for value in values]


def format_amount(value: float | None, unit: str | None = None) -> str:
    """Format a large amount with a metric prefix: ``16.4k``, ``1.65G``, or with a unit ``53.7 GFLOP``."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "not finite"
    size, prefix = next(((size, prefix) for size, prefix in _PREFIXES if abs(value) >= size), (1.0, ""))
    digits = f"{value / size:.3g}"
    return f"{digits}{prefix}" if unit is None else f"{digits} {prefix}{unit}".strip()


_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_bytes(count: float) -> str:
    """Format a number of bytes in the binary unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.4g} TiB"


def format_duration(seconds: float) -> str:
    """Format a duration in the unit that fits."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{days:.1f} days"
