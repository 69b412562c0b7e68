"""The plot of an evaluation: perplexity, accuracy and state norm against depth, the trained range marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.report.numbers import figure as digits
from loopkit.report.style import COLOURS, DASHES, INK, MARKERS, SHADE, SOFT, figure_of, logarithmic, save, style, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    normed = [row for row in rows if "state_norm" in row]
    answered = _accuracies(rows)
    scored = "window" in result or not answered
    drawn, panels = figure_of(scored + bool(answered) + bool(normed))
    if scored:
        _perplexity(panels[0], rows)
    if answered:
        _accuracy(panels[int(scored)], answered)
    if normed:
        _norms(panels[-1], normed)
    trained = result.get("trained_depths")
    for panel in panels:
        depth_axis(panel, [row["depth"] for row in rows])
        if trained:
            shade(panel, trained)
    panels[-1].set_xlabel("depth (loops)")
    title(drawn, f"{result.get('run') or result.get('recipe') or 'Evaluation'}: evaluation by depth", _slice(result))
    return drawn


def _perplexity(panel: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    points = [(row["depth"], row["token_ppl"]) for row in rows if "token_ppl" in row]
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
    depths = [row["depth"] for row in rows]
    values = []
    for index, (name, label) in enumerate((("mean", "mean"), ("median", "median"), ("p99", "99th percentile"))):
        line = [row["state_norm"][name] for row in rows]
        panel.plot(depths, line, color=COLOURS[index], marker=MARKERS[index], linestyle=DASHES[index], label=label)
        values += line
    panel.set_ylabel("state norm ‖s‖₂ per token")
    logarithmic(panel, values)
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    panel.margins(y=0.18)


def depth_axis(panel: Axes, depths: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panel.set_xlim(min(depths) - 0.5, max(depths) + 0.5)


def shade(panel: Axes, trained: Mapping[str, Any]) -> None:
    low, high = trained["min"], trained["max"]
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
    protocol = "" if result["protocol"] == "once" else f", protocol {result['protocol']}"
    what = result.get("slice", "slice not stated").partition(";")[0]
    return f"{what}; windows of {result['window']}{protocol}, {result['dtype']}"


def _describe(result: Mapping[str, Any]) -> str:
    points = [f"{row['token_ppl']:.4g} at {row['depth']}" for row in result["depths"] if "token_ppl" in row]
    parts = ["Token perplexity by depth in loops: " + ", ".join(points)] if points else []
    for name, found in _accuracies(result["depths"]).items():
        parts.append(f"Accuracy of {name} by depth in loops: " + ", ".join(f"{v:.4g} at {d}" for d, v in found))
    return "; ".join(parts) or "Evaluation by depth in loops"
