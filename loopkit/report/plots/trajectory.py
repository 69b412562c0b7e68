"""Plots of stability: how the state settles, the spectral radius, and the states' paths in their principal plane."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loopkit.report.numbers import figure as digits
from loopkit.report.plots.style import COLOURS, DASHES, INK, MARKERS, SOFT, figure_of, loop_colours, title
from loopkit.report.row import drawn_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]
Results = Mapping[str, Json]
"""Evaluations by what the legend calls them."""

_LEAST = 1e-8
"""Relative distances below this are rounding in fp32, and are drawn as if they were it."""


def has_trajectory(result: Json) -> bool:
    """Whether an evaluation measured one."""
    return "trajectory" in result.get("tables", {})


def look(index: int) -> dict[str, Any]:
    """Colour, marker and dash of the line of this number."""
    count = len(COLOURS)
    return {
        "color": COLOURS[index] if index < count else INK,
        "marker": MARKERS[index % count],
        "linestyle": DASHES[index % count],
    }


def draw_stability(results: Results, name: str, about: str) -> Figure:
    """Accuracy and spectral radius by depth, and distance to the last state by loop; under ``style()``.

    Args:
        results: Evaluations, of which at least one measured a trajectory.
        name: Title.
        about: The line below it.
    """
    panels = [_distance]
    if any("spectral_radius" in row for result in results.values() for row in result["depths"]):
        panels.insert(0, _radius)
    if any("exact_match" in row for result in results.values() for row in result["depths"]):
        panels.insert(0, _accuracy)
    drawn, axes = figure_of(len(panels), width=9.5, height=2.8)
    for panel, fill in zip(axes, panels, strict=True):
        fill(panel, results)
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[-1].set_xlabel("loop")
    title(drawn, name, about)
    return drawn


def _by_depth(panel: Axes, results: Results, figure: str, part: str | None) -> None:
    for index, (label, result) in enumerate(results.items()):
        name = figure if part is None else f"{figure}.{part}"
        known = [(row["depth"], drawn_at(row, name)) for row in result["depths"]]
        points = [(depth, value) for depth, value in known if value is not None]
        every = max(len(points) // 12, 1)
        depths, values = [depth for depth, _ in points], [value for _, value in points]
        panel.plot(depths, values, label=label, markevery=every, **look(index))
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")


def _accuracy(panel: Axes, results: Results) -> None:
    _by_depth(panel, results, "exact_match", None)
    panel.set_ylim(-0.03, 1.03)
    panel.set_ylabel("problems answered exactly")


def _radius(panel: Axes, results: Results) -> None:
    _by_depth(panel, results, "spectral_radius", "max")
    panel.axhline(1.0, color=SOFT, linewidth=1.0)
    panel.set_ylabel("largest spectral radius ρ")


def _distance(panel: Axes, results: Results) -> None:
    for index, (label, result) in enumerate(results.items()):
        if not has_trajectory(result):
            continue
        table = result["tables"]["trajectory"]
        # the last one is 0 by definition; one that is not finite leaves a gap
        values = [math.nan if value is None else max(value, _LEAST) for value in table["distance"][:-1]]
        every = max(len(values) // 12, 1)
        panel.plot(range(len(values)), values, label=label, markevery=every, **look(index))
    panel.set_yscale("log")
    panel.set_ylabel("distance to the last state\nrelative to its norm")


def draw_paths(results: Results, name: str, about: str) -> Figure:
    """The path of one sequence's states, seen along its first two principal components; under ``style()``.

    Args:
        results: Evaluations; those without a trajectory are left out.
        name: Title.
        about: The line below it.
    """
    from matplotlib.figure import Figure

    shown = {label: result["tables"]["trajectory"] for label, result in results.items() if has_trajectory(result)}
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    drawn = Figure(figsize=(3.2 * columns + 0.2, 2.9 * rows + 0.7), layout="constrained")
    panels: list[Axes] = list(drawn.subplots(rows, columns, squeeze=False).flatten())
    for panel, (label, table) in zip(panels, shown.items(), strict=False):
        _path(panel, table)
        panel.set_title(label, loc="left", fontsize=9)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    drawn.suptitle(f"{name}\n\n", x=0.015, ha="left", fontsize=12, fontweight="bold")
    drawn.text(0.015, 0.975 - 0.25 / drawn.get_figheight(), about, ha="left", va="top", fontsize=9, color=SOFT)
    return drawn


def _path(panel: Axes, table: Json) -> None:
    xs, ys = zip(*table["path"], strict=True)
    colours = loop_colours(len(xs))
    panel.plot(xs, ys, color=SOFT, linewidth=0.7, alpha=0.6)
    panel.scatter(xs, ys, c=colours, s=9, zorder=3)
    for place, word in ((0, "start"), (-1, f"loop {table['loops']}")):
        panel.annotate(word, (xs[place], ys[place]), xytext=(4, 4), textcoords="offset points", fontsize=8, color=INK)
    first, second = (f"{share:.0%}" for share in table["explained"])
    panel.set_xlabel(f"component 1 ({first} of variance)", fontsize=8)
    panel.set_ylabel(f"component 2 ({second})", fontsize=8)
    panel.tick_params(labelsize=7)
    panel.margins(0.12)


def describe(results: Results) -> str:
    """What the plots show, for readers who cannot see them."""
    said = []
    for label, result in results.items():
        if has_trajectory(result):
            table = result["tables"]["trajectory"]
            half = digits(table["distance"][table["loops"] // 2], 2)
            said.append(f"{label}: half way to loop {table['loops']} {half} away")
    return "Distance of the state to the last one, relative to its norm. " + "; ".join(said)
