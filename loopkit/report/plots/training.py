"""The plot of a training run: loss and state norm of every loop, and a histogram of loops per step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.errors import UserError
from loopkit.plural import plural
from loopkit.report.numbers import format_amount, format_value
from loopkit.report.plots.style import COLOURS, figure_of, logarithmic, loop_colours, save, style, title
from loopkit.report.row import select_depths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = list[tuple[float, float]]
"""Points (optimizer step, value)."""

_MAX_POINTS = 150  # longer runs are averaged into this many points to reduce noise
_MAX_CURVES = 6  # of more loops, only the powers of two and the last are drawn


def plot_training(lines: Sequence[Mapping[str, Any]], path: Path, name: str) -> Path:
    """Draw the training curves of a run.

    Args:
        lines: The lines of ``metrics.jsonl``.
        path: Where the SVG goes.
        name: Name of the run.

    Raises:
        UserError: If there are no lines.
    """
    with style():
        return save(draw_training(lines, name), path, _describe(lines))


def draw_training(lines: Sequence[Mapping[str, Any]], name: str) -> Figure:
    """Draw the figure of ``plot_training``; call it under ``style()``."""
    if not lines:
        raise UserError(f"{name}: metrics.jsonl has no line yet, so no curve can be drawn")
    norms, counts = by_loop(lines, "state_norm"), loop_counts(lines)
    figure, panels = figure_of(1 + bool(norms) + (len(counts) > 1))
    _draw_curves(panels[0], by_loop(lines, "ce"), "cross-entropy (nats per token)")
    if norms:
        _draw_curves(panels[1], norms, "state norm ‖s‖₂ per token")
    if len(counts) > 1:
        histogram(panels[-1], counts)
    title(figure, f"{name}: training", _subtitle(lines, counts))
    return figure


def by_loop(lines: Sequence[Mapping[str, Any]], key: str) -> dict[int, Curve]:
    """Collect the curve of each loop from a field that lists values by loop; ``null`` and NaN are left out."""
    curves: dict[int, Curve] = {}
    for line in lines:
        for loop, value in enumerate(line.get(key) or (), start=1):
            if value is not None and math.isfinite(value):
                curves.setdefault(loop, []).append((line["step"], value))
    return dict(sorted(curves.items()))


def smooth(curve: Curve, points: int = _MAX_POINTS) -> Curve:
    """Average neighbours so that at most ``points`` points remain."""
    size = math.ceil(len(curve) / points)
    parts = [curve[first : first + size] for first in range(0, len(curve), size)] if curve else []
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def loop_counts(lines: Iterable[Mapping[str, Any]]) -> Counter[int]:
    """Count the steps by their number of loops."""
    return Counter(line["loops"] for line in lines)


def _subtitle(lines: Sequence[Mapping[str, Any]], counts: Counter[int]) -> str:
    parts = [f"{lines[-1]['step']:,} optimizer steps", f"{format_amount(lines[-1]['tokens'])} tokens"]
    if len(counts) == 1:
        parts.append(f"{plural(int(next(iter(counts))), 'loop')} in every step")
    return ", ".join(parts)


def _draw_curves(panel: Axes, curves: Mapping[int, Curve], label: str) -> None:
    panel.set_xlabel("optimizer step")
    panel.set_ylabel(label)
    smoothed = {loop: smooth(curves[loop]) for loop in select_depths(list(curves), _MAX_CURVES)}
    colours = dict(zip(smoothed, loop_colours(len(smoothed)), strict=True))
    for loop, curve in smoothed.items():
        steps, values = zip(*curve, strict=True)
        panel.plot(steps, values, color=colours[loop], linewidth=1.4, marker="o" if len(steps) == 1 else None)
    panel.margins(x=0.02)
    logarithmic(panel, [value for curve in smoothed.values() for _, value in curve])
    heights = spread([_height(panel, curve[-1][1]) for curve in smoothed.values()], distance=0.085)
    for height, (loop, colour) in zip(heights, colours.items(), strict=True):
        panel.text(1.01, height, f"loop {loop}", transform=panel.transAxes, color=colour, va="center", fontsize=9)


def _height(panel: Axes, value: float) -> float:
    """Compute the position of a value between the lower and the upper end of a panel, 0 to 1."""
    low, high = panel.get_ylim()
    if panel.get_yscale() == "log":
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)


def spread(heights: Sequence[float], distance: float) -> list[float]:
    """Move heights in [0, 1] as little as possible so that neighbours keep a distance, without reordering them."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    moved = list(heights)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + distance)
    excess = max(moved[order[-1]] - 1, 0) if order else 0
    shift = min(excess, max(moved[order[0]], 0)) if order else 0
    return [height - shift for height in moved]


def histogram(panel: Axes, counts: Mapping[int, int]) -> None:
    """Draw the share of steps that ran each number of loops."""
    from matplotlib.ticker import MaxNLocator

    total = sum(counts.values())
    panel.set_xlabel("loops per step")
    panel.set_ylabel("share of steps (%)")
    loops = sorted(counts)
    panel.bar(loops, [100 * counts[loop] / total for loop in loops], width=0.8, color=COLOURS[0])
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panel.set_xlim(min(loops) - 1.5, max(loops) + 1.5)
    panel.set_ylim(0, None)
    panel.grid(axis="x", visible=False)
    mean = sum(loop * count for loop, count in counts.items()) / total
    panel.set_title(f"mean {format_value(mean, 3)}", loc="right", fontsize=9)


def _describe(lines: Sequence[Mapping[str, Any]]) -> str:
    ends = [f"loop {loop}: {curve[0][1]:.4g} to {curve[-1][1]:.4g}" for loop, curve in by_loop(lines, "ce").items()]
    return "Cross-entropy by loop over training, in nats per token: " + "; ".join(ends)
