"""The training curve of a run, thinned for a results file, and its plot: loss by step, loops by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.plural import plural
from loopkit.report.plots.style import figure_of, line_style, logarithmic, save, style, title
from loopkit.report.plots.training import histogram, loop_counts, smooth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Json = Mapping[str, Any]

POINTS = 80
"""Maximum number of points; a results file has one curve for each run."""


def training_curve(lines: Sequence[Json]) -> dict[str, Any]:
    """Thin the training curve of a run.

    Args:
        lines: The lines of ``metrics.jsonl``.

    Returns:
        JSON: ``step`` and ``loss``, lists of equal length: means over groups of neighbouring logged steps, with
            regularizers in the loss; ``loops``, a map from a number of loops, as text, to the number of logged steps
            that ran it.
    """
    points = smooth([(line["step"], line["loss"]) for line in lines], POINTS)
    return {
        "step": [round(step, 1) for step, _ in points],
        "loss": [float(f"{loss:.5g}") for _, loss in points],
        "loops": {str(loops): count for loops, count in sorted(loop_counts(lines).items())},
    }


def plot_curves(curves: Mapping[str, Json], path: Path, name: str) -> Path:
    """Draw the loss of runs that differ only in their seed, and a histogram of loops if steps differ in them.

    Args:
        curves: A ``training_curve`` by seed.
        path: Where the SVG goes.
        name: Title of the plot.
    """
    with style():
        return save(draw_curves(curves, name), path, describe_curves(curves))


def draw_curves(curves: Mapping[str, Json], name: str) -> Figure:
    """Draw the figure of ``plot_curves``; call it under ``style()``."""
    counts = _counts(curves)
    figure, panels = figure_of(1 + (len(counts) > 1))
    for index, (seed, curve) in enumerate(curves.items()):
        look = line_style(index) | {"marker": "o" if len(curve["step"]) == 1 else None}
        panels[0].plot(curve["step"], curve["loss"], **look, label=f"seed {seed}")
    panels[0].set_xlabel("optimizer step")
    panels[0].set_ylabel("training loss (nats per token)")
    panels[0].margins(x=0.02)
    logarithmic(panels[0], [loss for curve in curves.values() for loss in curve["loss"]])
    if len(curves) > 1:
        panels[0].legend(loc="upper right")
    if len(counts) > 1:
        histogram(panels[1], counts)
    constant = f"; {plural(int(next(iter(counts))), 'loop')} in every step" if len(counts) == 1 else ""
    title(figure, f"{name}: training", f"means over neighbouring steps, regularizers included{constant}")
    return figure


def describe_curves(curves: Mapping[str, Json]) -> str:
    """Describe the plot for screen readers."""
    ends = [f"{curve['loss'][0]:.4g} to {curve['loss'][-1]:.4g} with seed {seed}" for seed, curve in curves.items()]
    counts = _counts(curves)
    loops = f"; {min(counts)} to {max(counts)} loops per step" if len(counts) > 1 else ""
    return f"Training loss by optimizer step, in nats per token: {', '.join(ends)}{loops}"


def _counts(curves: Mapping[str, Json]) -> Counter[int]:
    """Count the steps of all seeds by their number of loops."""
    counts: Counter[int] = Counter()
    for curve in curves.values():
        counts.update({int(loops): count for loops, count in curve["loops"].items()})
    return counts
