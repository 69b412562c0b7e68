"""The plots of a comparison: figures of every run against depth at equal cost, and losses against what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.errors import UserError
from loopkit.report.numbers import large
from loopkit.report.plots.depth import depth_axis, shade
from loopkit.report.plots.style import COLOURS, DASHES, MARKERS, PAPER, SOFT, figure_of, logarithmic, save, style, title
from loopkit.report.plots.training import Curve, smooth
from loopkit.report.record import Record
from loopkit.report.row import drawn_at
from loopkit.report.tables.compare import QUANTITIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BUDGETS = {"tokens": "training tokens", "flops": "training FLOPs"}
_QUANTITIES = {
    "token_ppl": "perplexity (per token)",
    "exact_match": "exact answers (share)",
    "state_norm": "state norm ‖s‖₂, mean",
}


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
        raise UserError(f"the runs cannot be compared at equal {what}: {'; '.join(comparison['notes'])}")
    runs = comparison[what]["runs"]
    shown = [
        name for name in _QUANTITIES if any(_drawn(row, name) is not None for run in runs for row in run["depths"])
    ] or ["token_ppl"]
    drawn, panels = figure_of(len(shown))
    trained = [run.get("trained_depths") for run in runs]
    shared = _same(trained)
    mixed = shared is None and any(trained)
    for panel, name in zip(panels, shown, strict=True):
        _runs(panel, runs, name, mixed)
        depth_axis(panel, [row["depth"] for run in runs for row in run["depths"]])
        if shared is not None:
            shade(panel, shared)
    panels[-1].set_xlabel("depth (loops)")
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    budget = f"each run's last evaluation within {large(comparison[what]['budget'])} {_BUDGETS[what]}"
    budget += "; filled marks: trained depths" if mixed else ""
    title(drawn, f"{len(runs)} runs at equal {_BUDGETS[what]}", budget)
    return drawn


def _same(values: Sequence[Any]) -> Any:
    """The value that all have, or ``None`` where they differ."""
    return values[0] if all(value == values[0] for value in values) else None


def _runs(panel: Axes, runs: list[Mapping[str, Any]], name: str, mixed: bool) -> None:
    """The line of each run; with ``mixed`` trained ranges its marks tell which depths were trained."""
    panel.set_ylabel(_QUANTITIES[name])
    values: list[float] = []
    for index, run in enumerate(runs):
        points = [(row["depth"], value) for row in run["depths"] if (value := _drawn(row, name)) is not None]
        if not points:
            continue
        look = _look(index)
        depths, line = zip(*points, strict=True)
        fill = PAPER if mixed else look["color"]
        panel.plot(depths, line, **look, markerfacecolor=fill, markevery=_few(len(points)), label=run["run"])
        inside = {row["depth"] for row in run["depths"] if row.get("trained")} if mixed else set()
        if filled := [point for point in points if point[0] in inside]:
            panel.plot(*zip(*filled, strict=True), **(look | {"linestyle": "none"}), markevery=_few(len(filled)))
        values += line
    logarithmic(panel, values)
    if not values:
        panel.text(0.5, 0.5, "no depth has a finite value", transform=panel.transAxes, ha="center", color=SOFT)


def _drawn(row: Mapping[str, Any], name: str) -> float | None:
    return drawn_at(row, QUANTITIES[name].figure)


def _look(index: int) -> dict[str, Any]:
    look = index % len(COLOURS)
    return {"color": COLOURS[look], "marker": MARKERS[look], "linestyle": DASHES[look]}


def _few(points: int) -> int:
    """Every how many points a line has a mark, so that marks stay apart."""
    return max(round(points / 16), 1)


def plot_losses(records: Sequence[Record], path: Path) -> Path:
    """Draw the cross-entropy of the last loop against training tokens and training FLOPs.

    Args:
        records: The runs; of one that logged nothing there is no curve.
        path: Where the SVG goes.

    Raises:
        ValueError: If no run logged anything.
    """
    with style():
        ends = [f"{name} ends at {curve[-1][1]:.4g}" for name, curve in _curves(records, "tokens").items()]
        drawn = draw_losses(records)
        return save(drawn, path, f"Cross-entropy of the last loop over training, in nats per token: {'; '.join(ends)}")


def draw_losses(records: Sequence[Record]) -> Figure:
    """The figure of ``plot_losses``, to be drawn under ``style()``."""
    by_budget = {what: curves for what in _BUDGETS if (curves := _curves(records, what))}
    if not by_budget:
        raise UserError("no run has logged what its training cost, so there is nothing to draw")
    drawn, panels = figure_of(len(by_budget))
    for panel, (what, curves) in zip(panels, by_budget.items(), strict=True):
        for index, record in enumerate(records):
            if curve := curves.get(record.name):
                spent, losses = zip(*curve, strict=True)
                panel.plot(spent, losses, **_look(index), markevery=_few(len(curve)), label=record.name)
        panel.set_xlabel(_BUDGETS[what])
        panel.set_ylabel("cross-entropy, last loop\n(nats per token)")
        panel.xaxis.set_major_formatter(lambda value, _: large(value))
        logarithmic(panel, [value for curve in curves.values() for _, value in curve])
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    title(drawn, f"Training of {len(records)} runs", "means over neighbouring steps where there are many")
    return drawn


def _curves(records: Sequence[Record], what: str) -> dict[str, Curve]:
    """What was spent, and the loss of the last loop, by run."""
    found = {}
    for record in records:
        points = [
            (line[what], line["ce"][-1])
            for line in record.lines
            if line.get(what) is not None and line["ce"] and line["ce"][-1] is not None
        ]
        if points:
            found[record.name] = smooth(points)
    return found
