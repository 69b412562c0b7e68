"""The plot of an evaluation: perplexity, accuracy and state norm against depth, with the trained range marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.recipe.depths import format_depths
from loopkit.report.numbers import format_value
from loopkit.report.plots.style import (
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    SHADE,
    SOFT,
    annotate_empty,
    figure_of,
    logarithmic,
    save,
    style,
    title,
)
from loopkit.report.row import (
    LARGEST_DRAWN,
    NOT_FINITE,
    drawable_points,
    drawable_value,
    is_measured,
    is_not_finite,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NORMS = (("mean", "mean"), ("median", "median"), ("p99", "99th percentile"))


def plot_depths(result: Mapping[str, Any], path: Path) -> Path:
    """Draw perplexity, accuracy of tasks and state norm against depth; what was not measured has no panel.

    Args:
        result: The JSON of an evaluation.
        path: Where the SVG goes.
    """
    with style():
        return save(draw_depths(result), path, _describe(result))


def draw_depths(result: Mapping[str, Any]) -> Figure:
    """Draw the figure of ``plot_depths``; call it under ``style()``."""
    rows = result["depths"]
    has_norms = any(is_measured(row, f"state_norm.{name}") for row in rows for name, _ in _NORMS)
    accuracies = _accuracies(rows)
    has_perplexity = "window" in result or not accuracies
    figure, panels = figure_of(has_perplexity + bool(accuracies) + has_norms)
    if has_perplexity:
        _draw_perplexity(panels[0], rows)
        _mark_missing(panels[0], rows, "token_ppl")
    if accuracies:
        _draw_accuracies(panels[int(has_perplexity)], accuracies)
    if has_norms:
        _draw_norms(panels[-1], rows)
        _mark_missing(panels[-1], rows, *(f"state_norm.{name}" for name, _ in _NORMS))
    trained = result.get("trained_depths")
    for panel in panels:
        depth_axis(panel, [row["depth"] for row in rows])
        if trained:
            shade(panel, trained)
    panels[-1].set_xlabel("depth (loops)")
    title(figure, f"{result.get('run') or result.get('recipe') or 'Evaluation'}: evaluation by depth", _slice(result))
    return figure


def _draw_perplexity(panel: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    points = drawable_points(rows, "token_ppl")
    panel.set_ylabel("perplexity (per token)")
    if not points:
        annotate_empty(panel, "no depth has a finite perplexity")
        return
    depths, values = zip(*points, strict=True)
    panel.plot(depths, values, color=COLOURS[0], marker=MARKERS[0])
    logarithmic(panel, values)
    best = min(points, key=lambda point: point[1])
    panel.annotate(
        f"lowest: {format_value(best[1])} at {best[0]}",
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
    """Collect depths and accuracies of every task that has an accuracy."""
    accuracies: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, metrics in row.items():
            if isinstance(metrics, Mapping) and "accuracy" in metrics:
                accuracies.setdefault(name, []).append((row["depth"], metrics["accuracy"]))
    return accuracies


def _draw_accuracies(panel: Axes, accuracies: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    for index, (name, points) in enumerate(accuracies.items()):
        depths, values = zip(*points, strict=True)
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        panel.plot(depths, [100 * value for value in values], color=colour, marker=marker, label=name)
    panel.set_ylabel("accuracy (%)")
    panel.set_ylim(bottom=0)
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    panel.margins(y=0.18)


def _draw_norms(panel: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    values: list[float] = []
    for index, (name, label) in enumerate(_NORMS):
        points = drawable_points(rows, f"state_norm.{name}")
        depths, line = [depth for depth, _ in points], [value for _, value in points]
        panel.plot(depths, line, color=COLOURS[index], marker=MARKERS[index], linestyle=DASHES[index], label=label)
        values += line
    panel.set_ylabel("state norm ‖s‖₂ per token")
    logarithmic(panel, values)
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    panel.margins(y=0.18)


def _mark_missing(panel: Axes, rows: Sequence[Mapping[str, Any]], *metrics: str) -> None:
    """Mark the depths at which a measured metric cannot be drawn, at the upper edge."""
    depths = [
        row["depth"]
        for row in rows
        if any(is_measured(row, metric) and drawable_value(row, metric) is None for metric in metrics)
    ]
    if depths:
        edge = panel.get_xaxis_transform()
        panel.plot(depths, [0.97] * len(depths), "x", color=COLOURS[1], transform=edge, clip_on=False)
        is_large = not any(is_not_finite(row, metric) for row in rows for metric in metrics)
        text = f"{f'beyond {LARGEST_DRAWN:g}' if is_large else NOT_FINITE} at {format_depths(depths)}"
        panel.annotate(text, (0, 1), xycoords="axes fraction", xytext=(4, -14), textcoords="offset points", fontsize=9)


def depth_axis(panel: Axes, depths: Sequence[int]) -> None:
    """Limit the x axis to the depths, with ticks at integers."""
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panel.set_xlim(min(depths) - 0.5, max(depths) + 0.5)


def shade(panel: Axes, trained: Mapping[str, Any]) -> None:
    """Shade the trained depths of a panel."""
    depths = trained.get("depths") or range(trained["min"], trained["max"] + 1)
    low, high = min(depths), max(depths)
    for depth in depths if len(depths) <= high - low else ():  # one band each if there are gaps
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
    """Describe the scored data and the settings in one line."""
    if "window" not in result:
        counts = {
            name: task.get("problems", task.get("questions", "all")) for name, task in result.get("tasks", {}).items()
        }
        tasks = [f"{count} of {name}" for name, count in counts.items()]
        return f"{', '.join(tasks)}; {result['dtype']}"
    protocol = "" if result["protocol"] == "non_overlapping" else f", protocol {result['protocol']}"
    data = result.get("slice", "slice not stated").partition(";")[0]
    return f"{data}; windows of {result['window']}{protocol}, {result['dtype']}"


def _describe(result: Mapping[str, Any]) -> str:
    rows = [row for row in result["depths"] if is_measured(row, "token_ppl")]
    texts = [NOT_FINITE if is_not_finite(row, "token_ppl") else f"{row['token_ppl']:.4g}" for row in rows]
    points = [f"{text} at {row['depth']}" for text, row in zip(texts, rows, strict=True)]
    parts = ["Token perplexity by depth in loops: " + ", ".join(points)] if points else []
    for name, accuracies in _accuracies(result["depths"]).items():
        parts.append(f"Accuracy of {name} by depth in loops: " + ", ".join(f"{v:.4g} at {d}" for d, v in accuracies))
    return "; ".join(parts) or "Evaluation by depth in loops"
