"""Small inline SVG plots that take the colours of the page: a line by depth, bars by loop."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from loopkit.report.numbers import format_value

WIDTH, HEIGHT = 240, 96
LEFT, RIGHT, TOP, BOTTOM = 8, 8, 16, 20
MAX_RATIO = 8.0
"""Values above this multiple of the minimum are not drawn; the label counts them."""


def depth_line(rows: Sequence[Mapping[str, Any]], name: str, label: str) -> str:
    """Draw a metric against depth as inline SVG, trained depths shaded; empty if there are fewer than two values.

    Args:
        rows: The ``depths`` of an evaluation.
        name: Key of the metric.
        label: Label of the metric.
    """
    points = [(row["depth"], float(row[name])) for row in rows if isinstance(row.get(name), int | float)]
    lowest = min((value for _, value in points), default=0.0)
    shown = [point for point in points if lowest <= 0 or point[1] <= MAX_RATIO * lowest]
    if len(shown) < 2:
        return ""
    depths = [depth for depth, _ in points]
    positions = [(_x(depth, depths), _y(value, [v for _, v in shown])) for depth, value in shown]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in positions)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in positions) if len(positions) <= 16 else ""
    num_hidden = len(points) - len(shown)
    beyond = f", {num_hidden} far above" if num_hidden else ""
    description = (
        f"{label} by depth: " + ", ".join(f"{format_value(value)} at {depth}" for depth, value in shown) + beyond
    )
    first, last = format_value(shown[0][1]), format_value(shown[-1][1])
    return (
        f'<svg class="lk-plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(description)}">'
        f"{_shade(rows, depths)}"
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
        f'<polyline points="{path}"/>{dots}'
        f'<text x="{LEFT}" y="10">{html.escape(label)}{beyond}</text>'
        f'<text x="{WIDTH - RIGHT}" y="10" text-anchor="end">{first} → {last}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 6}">{depths[0]} loop{"s" if depths[0] != 1 else ""}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{depths[-1]}</text></svg>'
    )


def loop_bars(counts: Sequence[int], label: str) -> str:
    """Draw the number of sequences that stopped after each loop as inline SVG.

    Args:
        counts: Counts by loop, from the first.
        label: Label of the counts.
    """
    largest, total = max(counts), sum(counts)
    step = (WIDTH - LEFT - RIGHT) / len(counts)
    bars = []
    for index, count in enumerate(counts):
        x, height = LEFT + index * step + 2, (HEIGHT - TOP - BOTTOM - 10) * count / max(largest, 1)
        y, middle = HEIGHT - BOTTOM - height, x + step / 2 - 2
        bars.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{height:.1f}"/>'
            f'<text x="{middle:.1f}" y="{y - 3:.1f}" text-anchor="middle">{count}</text>'
            f'<text x="{middle:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{index + 1}</text>'
        )
    description = f"{label}: " + ", ".join(f"{count} of {total} at loop {loop}" for loop, count in enumerate(counts, 1))
    return (
        f'<svg class="lk-plot lk-bars" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(description)}">'
        f'<text x="{LEFT}" y="10">{html.escape(label)}</text>{"".join(bars)}</svg>'
    )


def _x(depth: int, depths: Sequence[int]) -> float:
    """Map a depth to x on a logarithmic axis, so that large depths leave room for small ones."""
    low, high = math.log(depths[0] + 1), math.log(depths[-1] + 1)
    share = (math.log(depth + 1) - low) / (high - low) if high > low else 0.5
    return LEFT + 4 + share * (WIDTH - LEFT - RIGHT - 8)


def _y(value: float, values: Sequence[float]) -> float:
    low, high = min(values), max(values)
    share = (value - low) / (high - low) if high > low else 0.5
    return HEIGHT - BOTTOM - 6 - share * (HEIGHT - TOP - BOTTOM - 12)


def _shade(rows: Sequence[Mapping[str, Any]], depths: Sequence[int]) -> str:
    trained = [row["depth"] for row in rows if row.get("trained")]
    if not trained:
        return ""
    left, right = _x(trained[0], depths) - 5, _x(trained[-1], depths) + 5
    return (
        f'<rect class="trained" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>'
    )
