"""The plots of a comparison: metrics against depth at equal cost, and losses against training cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.errors import UserError
from loopkit.report.numbers import format_amount
from loopkit.report.plots.depth import depth_axis, shade
from loopkit.report.plots.style import (
    PAPER,
    annotate_empty,
    figure_of,
    line_style,
    logarithmic,
    mark_every,
    save,
    style,
    title,
)
from loopkit.report.plots.training import Curve, smooth
from loopkit.report.record import Record
from loopkit.report.row import drawable_points, drawable_value
from loopkit.report.tables.compare import COMPARED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BUDGETS = {"tokens": "training tokens", "flops": "training FLOPs"}
_LABELS = {
    "token_ppl": "perplexity (per token)",
    "exact_match": "exact match",
    "state_norm": "state norm ‖s‖₂, mean",
}


def plot_comparison(comparison: Mapping[str, Any], path: Path, budget: str = "tokens") -> Path:
    """Draw runs against depth.

    Args:
        comparison: Result of ``compare``.
        path: Where the SVG goes.
        budget: What the runs have spent equally, ``tokens`` or ``flops``.

    Raises:
        UserError: If the comparison lacks this budget.
    """
    with style():
        names = ", ".join(comparison["runs"])
        return save(draw_comparison(comparison, budget), path, f"Perplexity and state norm against depth: {names}")


def draw_comparison(comparison: Mapping[str, Any], budget: str = "tokens") -> Figure:
    """Draw the figure of ``plot_comparison``; call it under ``style()``."""
    if budget not in comparison:
        raise UserError(f"the runs cannot be compared at equal {budget}: {'; '.join(comparison['notes'])}")
    runs = comparison[budget]["runs"]
    rows = [row for run in runs for row in run["depths"]]
    names = [name for name in _LABELS if any(drawable_value(row, COMPARED[name].metric) is not None for row in rows)]
    names = names or ["token_ppl"]
    figure, panels = figure_of(len(names))
    trained = [run.get("trained_depths") for run in runs]
    shared = trained[0] if all(value == trained[0] for value in trained) else None
    is_mixed = shared is None and any(trained)
    for panel, name in zip(panels, names, strict=True):
        _draw_runs(panel, runs, name, is_mixed)
        depth_axis(panel, [row["depth"] for row in rows])
        if shared is not None:
            shade(panel, shared)
    panels[-1].set_xlabel("depth (loops)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    limit = format_amount(comparison[budget]["budget"])
    subtitle = f"each run's last evaluation within {limit} {_BUDGETS[budget]}"
    subtitle += "; filled markers: trained depths" if is_mixed else ""
    title(figure, f"{len(runs)} runs at equal {_BUDGETS[budget]}", subtitle)
    return figure


def _draw_runs(panel: Axes, runs: list[Mapping[str, Any]], name: str, is_mixed: bool) -> None:
    """Draw the line of each run; if trained ranges differ, filled markers show which depths were trained."""
    panel.set_ylabel(_LABELS[name])
    values: list[float] = []
    for index, run in enumerate(runs):
        points = drawable_points(run["depths"], COMPARED[name].metric)
        if not points:
            continue
        look = line_style(index)
        depths, line = zip(*points, strict=True)
        fill = PAPER if is_mixed else look["color"]
        panel.plot(depths, line, **look, markerfacecolor=fill, markevery=mark_every(len(points)), label=run["run"])
        trained = {row["depth"] for row in run["depths"] if row.get("trained")} if is_mixed else set()
        if filled := [point for point in points if point[0] in trained]:
            panel.plot(*zip(*filled, strict=True), **(look | {"linestyle": "none"}), markevery=mark_every(len(filled)))
        values += line
    logarithmic(panel, values)
    if not values:
        annotate_empty(panel, "no depth has a finite value")


def plot_losses(records: Sequence[Record], path: Path) -> Path:
    """Draw the cross-entropy of the last loop against training tokens and training FLOPs.

    Args:
        records: The runs; one without logged steps has no curve.
        path: Where the SVG goes.

    Raises:
        UserError: If no run has logged its cost.
    """
    with style():
        ends = [f"{name} ends at {curve[-1][1]:.4g}" for name, curve in _curves(records, "tokens").items()]
        figure = draw_losses(records)
        return save(figure, path, f"Cross-entropy of the last loop over training, in nats per token: {'; '.join(ends)}")


def draw_losses(records: Sequence[Record]) -> Figure:
    """Draw the figure of ``plot_losses``; call it under ``style()``."""
    by_budget = {budget: curves for budget in _BUDGETS if (curves := _curves(records, budget))}
    if not by_budget:
        raise UserError("no run has logged tokens or FLOPs of its training, so no curve can be drawn")
    figure, panels = figure_of(len(by_budget))
    for panel, (budget, curves) in zip(panels, by_budget.items(), strict=True):
        for index, record in enumerate(records):
            if curve := curves.get(record.name):
                spent, losses = zip(*curve, strict=True)
                panel.plot(spent, losses, **line_style(index), markevery=mark_every(len(curve)), label=record.name)
        panel.set_xlabel(_BUDGETS[budget])
        panel.set_ylabel("cross-entropy, last loop\n(nats per token)")
        panel.xaxis.set_major_formatter(lambda value, _: format_amount(value))
        logarithmic(panel, [value for curve in curves.values() for _, value in curve])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    title(figure, f"Training of {len(records)} runs", "long curves: means over neighbouring steps")
    return figure


def _curves(records: Sequence[Record], budget: str) -> dict[str, Curve]:
    """Collect (spent budget, loss of the last loop) of each run that logged them."""
    curves = {}
    for record in records:
        points = [
            (line[budget], line["ce"][-1])
            for line in record.lines
            if line.get(budget) is not None and line["ce"] and line["ce"][-1] is not None
        ]
        if points:
            curves[record.name] = smooth(points)
    return curves
