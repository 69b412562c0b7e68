"""The plot of an evaluation: perplexity, accuracy and state norm against depth, the trained range marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.recipe.depths import format_depths
from loopkit.report.numbers import figure as digits
from loopkit.report.plots.style import (
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    SHADE,
    SOFT,
    figure_of,
    logarithmic,
    save,
    style,
    title,
)
from loopkit.report.row import LARGEST_DRAWN, NOT_FINITE, drawn_at, is_lost, is_measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NORMS = (("mean", "mean"), ("median", "median"), ("p99", "99th percentile"))


def plot_depths(result: Mapping[str, Any], path: Path) -> Path:
    """Draw perplexity, accuracy of tasks and state norm against depth, as far as they were measured.

    Args:
        result: The JSON of an evaluation.
        path: Where the SVG goes.
    """
    with style():
        return save(draw_depths(result), path, _describe(result))


def draw_depths(result: Mapping[str, Any]) -> Figure:
    """The figure of ``plot_depths``, to be drawn under ``style()``."""
    rows = result["depths"]
    normed = any(is_measured(row, f"state_norm.{name}") for row in rows for name, _ in _NORMS)
    answered = _accuracies(rows)
    scored = "window" in result or not answered
    drawn, panels = figure_of(scored + bool(answered) + normed)
    if scored:
        _perplexity(panels[0], rows)
        _mark_lost(panels[0], rows, "token_ppl")
    if answered:
        _accuracy(panels[int(scored)], answered)
    if normed:
        _norms(panels[-1], rows)
        _mark_lost(panels[-1], rows, *(f"state_norm.{name}" for name, _ in _NORMS))
    trained = result.get("trained_depths")
    for panel in panels:
        depth_axis(panel, [row["depth"] for row in rows])
        if trained:
            shade(panel, trained)
    panels[-1].set_xlabel("depth (loops)")
    title(drawn, f"{result.get('run') or result.get('recipe') or 'Evaluation'}: evaluation by depth", _slice(result))
    return drawn


def _points(rows: Sequence[Mapping[str, Any]], figure: str) -> list[tuple[int, float]]:
    """Depths and values of a figure, as far as they can be drawn."""
    known = [(row["depth"], drawn_at(row, figure)) for row in rows]
    return [(depth, value) for depth, value in known if value is not None]


def _perplexity(panel: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    points = _points(rows, "token_ppl")
    panel.set_ylabel("perplexity (per token)")
    if not points:
        panel.text(0.5, 0.5, "no depth has a finite perplexity", transform=panel.transAxes, ha="center", color=SOFT)
        return
    depths, values = zip(*points, strict=True)
    panel.plot(depths, values, color=COLOURS[0], marker=MARKERS[0])
    logarithmic(panel, values)
    best = min(points, key=lambda point: point[1])
    panel.annotate(
        f"lowest: {digits(best[1])} at {best[0]}",
        best,
        xytext=(0, -7),
        textcoords="offset points",
        va="top",
        ha="left" if best[0] < depths[-1] else "right",
        fontsize=9,
        color=INK,
    )
    panel.margins(y=0.18)


def _accuracies(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Depths and accuracies of every task that has some."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, figures in row.items():
            if isinstance(figures, Mapping) and "accuracy" in figures:
                found.setdefault(name, []).append((row["depth"], figures["accuracy"]))
    return found


def _accuracy(panel: Axes, answered: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    for index, (name, points) in enumerate(answered.items()):
        depths, values = zip(*points, strict=True)
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        panel.plot(depths, [100 * value for value in values], color=colour, marker=marker, label=name)
    panel.set_ylabel("accuracy (%)")
    panel.set_ylim(bottom=0)
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    panel.margins(y=0.18)


def _norms(panel: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    values: list[float] = []
    for index, (name, label) in enumerate(_NORMS):
        points = _points(rows, f"state_norm.{name}")
        depths, line = [depth for depth, _ in points], [value for _, value in points]
        panel.plot(depths, line, color=COLOURS[index], marker=MARKERS[index], linestyle=DASHES[index], label=label)
        values += line
    panel.set_ylabel("state norm ‖s‖₂ per token")
    logarithmic(panel, values)
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    panel.margins(y=0.18)


def _mark_lost(panel: Axes, rows: Sequence[Mapping[str, Any]], *figures: str) -> None:
    """Mark the depths at which a figure cannot be drawn, at the upper edge."""
    lost = [
        row["depth"]
        for row in rows
        if any(is_measured(row, figure) and drawn_at(row, figure) is None for figure in figures)
    ]
    if lost:
        edge = panel.get_xaxis_transform()
        panel.plot(lost, [0.97] * len(lost), "x", color=COLOURS[1], transform=edge, clip_on=False)
        beyond = not any(is_lost(row, figure) for row in rows for figure in figures)
        text = f"{f'beyond {LARGEST_DRAWN:g}' if beyond else NOT_FINITE} at {format_depths(lost)}"
        panel.annotate(text, (0, 1), xycoords="axes fraction", xytext=(4, -14), textcoords="offset points", fontsize=9)


def depth_axis(panel: Axes, depths: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panel.set_xlim(min(depths) - 0.5, max(depths) + 0.5)


def shade(panel: Axes, trained: Mapping[str, Any]) -> None:
    depths = trained.get("depths") or range(trained["min"], trained["max"] + 1)
    low, high = min(depths), max(depths)
    for depth in depths if len(depths) <= high - low else ():  # a band for each, where some between are not trained
        panel.axvspan(depth - 0.5, depth + 0.5, color=SHADE, zorder=0, lw=0)
    if len(depths) > high - low:
        panel.axvspan(low - 0.5, high + 0.5, color=SHADE, zorder=0, lw=0)
    left, right = panel.get_xlim()
    middle = (max(low - 0.5, left) + min(high + 0.5, right)) / 2
    if left < middle < right:
        panel.text(
            middle,
            0.98,
            "trained",
            transform=panel.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=9,
            color=SOFT,
        )


def _slice(result: Mapping[str, Any]) -> str:
    """What was scored, and how, in a line as wide as the figure."""
    if "window" not in result:
        asked = [f"{task.get('problems', 'all')} of {name}" for name, task in result.get("tasks", {}).items()]
        return f"{', '.join(asked)}; {result['dtype']}"
    protocol = "" if result["protocol"] == "non_overlapping" else f", protocol {result['protocol']}"
    what = result.get("slice", "slice not stated").partition(";")[0]
    return f"{what}; windows of {result['window']}{protocol}, {result['dtype']}"


def _describe(result: Mapping[str, Any]) -> str:
    rows = [row for row in result["depths"] if is_measured(row, "token_ppl")]
    texts = [NOT_FINITE if is_lost(row, "token_ppl") else f"{row['token_ppl']:.4g}" for row in rows]
    points = [f"{text} at {row['depth']}" for text, row in zip(texts, rows, strict=True)]
    parts = ["Token perplexity by depth in loops: " + ", ".join(points)] if points else []
    for name, found in _accuracies(result["depths"]).items():
        parts.append(f"Accuracy of {name} by depth in loops: " + ", ".join(f"{v:.4g} at {d}" for d, v in found))
    return "; ".join(parts) or "Evaluation by depth in loops"
