"""Plots of stability: convergence of the state, spectral radius, and paths of states in their principal plane."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loopkit.report.numbers import format_value
from loopkit.report.plots.style import INK, SOFT, figure_of, line_style, loop_colours, mark_every, title
from loopkit.report.row import drawable_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]
Results = Mapping[str, Json]
"""Evaluations by their label in the legend."""

_MIN_DISTANCE = 1e-8
"""Smaller relative distances are rounding errors of fp32 and are drawn at this value."""


def has_trajectory(result: Json) -> bool:
    """Whether an evaluation measured a trajectory."""
    return "trajectory" in result.get("tables", {})


def draw_stability(results: Results, name: str, subtitle: str) -> Figure:
    """Draw accuracy and spectral radius by depth, and distance to the last state by loop; call it under ``style()``.

    Args:
        results: Evaluations, of which at least one measured a trajectory.
        name: Title.
        subtitle: Subtitle.
    """
    draw_panels = [_draw_distance]
    if any("spectral_radius" in row for result in results.values() for row in result["depths"]):
        draw_panels.insert(0, _draw_radius)
    if any("exact_match" in row for result in results.values() for row in result["depths"]):
        draw_panels.insert(0, _draw_accuracy)
    figure, panels = figure_of(len(draw_panels), width=9.5, height=2.8)
    for panel, draw in zip(panels, draw_panels, strict=True):
        draw(panel, results)
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    panels[-1].set_xlabel("loop")
    title(figure, name, subtitle)
    return figure


def _draw_by_depth(panel: Axes, results: Results, metric: str) -> None:
    for index, (label, result) in enumerate(results.items()):
        points = drawable_points(result["depths"], metric)
        depths, values = [depth for depth, _ in points], [value for _, value in points]
        panel.plot(depths, values, label=label, markevery=mark_every(len(points)), **line_style(index))
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")


def _draw_accuracy(panel: Axes, results: Results) -> None:
    _draw_by_depth(panel, results, "exact_match")
    panel.set_ylim(-0.03, 1.03)
    panel.set_ylabel("exact match")


def _draw_radius(panel: Axes, results: Results) -> None:
    _draw_by_depth(panel, results, "spectral_radius.max")
    panel.axhline(1.0, color=SOFT, linewidth=1.0)
    panel.set_ylabel("largest spectral radius ρ")


def _draw_distance(panel: Axes, results: Results) -> None:
    for index, (label, result) in enumerate(results.items()):
        if not has_trajectory(result):
            continue
        table = result["tables"]["trajectory"]
        # the last distance is 0 by definition; NaN leaves a gap
        values = [math.nan if value is None else max(value, _MIN_DISTANCE) for value in table["distance"][:-1]]
        panel.plot(range(len(values)), values, label=label, markevery=mark_every(len(values)), **line_style(index))
    panel.set_yscale("log")
    panel.set_ylabel("distance to the last state\nrelative to its norm")


def draw_paths(results: Results, name: str, subtitle: str) -> Figure:
    """Draw the states of one sequence along their first two principal components; call it under ``style()``.

    Args:
        results: Evaluations; those without a trajectory are left out.
        name: Title.
        subtitle: Subtitle.
    """
    from matplotlib.figure import Figure

    tables = {label: result["tables"]["trajectory"] for label, result in results.items() if has_trajectory(result)}
    columns = min(len(tables), 3)
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(3.2 * columns + 0.2, 2.9 * rows + 0.7), layout="constrained")
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for panel, (label, table) in zip(panels, tables.items(), strict=False):
        _draw_path(panel, table)
        panel.set_title(label, loc="left", fontsize=9)
    for panel in panels[len(tables) :]:
        panel.set_axis_off()
    figure.suptitle(f"{name}\n\n", x=0.015, ha="left", fontsize=12, fontweight="bold")
    figure.text(0.015, 0.975 - 0.25 / figure.get_figheight(), subtitle, ha="left", va="top", fontsize=9, color=SOFT)
    return figure


def _draw_path(panel: Axes, table: Json) -> None:
    xs, ys = zip(*table["path"], strict=True)
    colours = loop_colours(len(xs))
    panel.plot(xs, ys, color=SOFT, linewidth=0.7, alpha=0.6)
    panel.scatter(xs, ys, c=colours, s=9, zorder=3)
    for index, text in ((0, "start"), (-1, f"loop {table['loops']}")):
        panel.annotate(text, (xs[index], ys[index]), xytext=(4, 4), textcoords="offset points", fontsize=8, color=INK)
    first, second = (f"{share:.0%}" for share in table["explained"])
    panel.set_xlabel(f"component 1 ({first} of variance)", fontsize=8)
    panel.set_ylabel(f"component 2 ({second})", fontsize=8)
    panel.tick_params(labelsize=7)
    panel.margins(0.12)


def describe(results: Results) -> str:
    """Describe the plots for screen readers."""
    parts = []
    for label, result in results.items():
        if has_trajectory(result):
            table = result["tables"]["trajectory"]
            middle = table["loops"] // 2
            parts.append(f"{label}: {format_value(table['distance'][middle], 2)} at loop {middle} of {table['loops']}")
    return "Distance to the last state, relative to its norm. " + "; ".join(parts)
