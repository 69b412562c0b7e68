"""The plot of a comparison: perplexity and state norm of every run against depth, at equal training tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.report.compare_table import depth_value
from loopkit.report.depth_plot import depth_axis, shade
from loopkit.report.numbers import large
from loopkit.report.style import COLOURS, DASHES, MARKERS, figure_of, logarithmic, save, style, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BUDGETS = {"tokens": "training tokens", "flops": "training FLOPs"}
_QUANTITIES = {"token_ppl": "perplexity (per token)", "state_norm": "state norm ‖s‖₂, mean"}


def plot_comparison(comparison: Mapping[str, Any], path: Path, what: str = "tokens") -> Path:
    """Draw runs against depth.

    Args:
        comparison: Result of ``compare``.
        path: Where the SVG goes.
        what: What the runs have spent equally, ``tokens`` or ``flops``.

    Raises:
        ValueError: If the comparison holds nothing at this budget.
    """
    with style():
        names = ", ".join(comparison["runs"])
        return save(draw_comparison(comparison, what), path, f"Perplexity and state norm against depth of {names}")


def draw_comparison(comparison: Mapping[str, Any], what: str = "tokens") -> Figure:
    """The figure of ``plot_comparison``, to be drawn under ``style()``."""
    if what not in comparison:
        raise ValueError(f"the runs cannot be compared at equal {what}: {'; '.join(comparison['notes'])}")
    runs = comparison[what]["runs"]
    shown = [
        name for name in _QUANTITIES if any(depth_value(row, name) is not None for run in runs for row in run["depths"])
    ]
    drawn, panels = figure_of(len(shown))
    for panel, name in zip(panels, shown, strict=True):
        _runs(panel, runs, name)
        depth_axis(panel, [row["depth"] for run in runs for row in run["depths"]])
        if trained := _same([run.get("trained_depths") for run in runs]):
            shade(panel, trained)
    panels[-1].set_xlabel("depth (loops)")
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    budget = f"each run's last evaluation within {large(comparison[what]['budget'])} {_BUDGETS[what]}"
    title(drawn, f"{len(runs)} runs at equal {_BUDGETS[what]}", budget)
    return drawn


def _same(values: Sequence[Any]) -> Any:
    """The value that all have, or ``None`` where they differ."""
    return values[0] if all(value == values[0] for value in values) else None


def _runs(panel: Axes, runs: list[Mapping[str, Any]], name: str) -> None:
    panel.set_ylabel(_QUANTITIES[name])
    values: list[float] = []
    for index, run in enumerate(runs):
        points = [(row["depth"], value) for row in run["depths"] if (value := depth_value(row, name)) is not None]
        look = index % len(COLOURS)
        if points:
            depths, line = zip(*points, strict=True)
            panel.plot(
                depths, line, color=COLOURS[look], marker=MARKERS[look], linestyle=DASHES[look], label=run["run"]
            )
            values += line
    logarithmic(panel, values)
