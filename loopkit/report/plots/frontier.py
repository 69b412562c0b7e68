"""The plot of early-exit benchmarks: perplexity against measured speed, fixed depths and exits, runs side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.errors import UserError
from loopkit.report.numbers import figure as digits
from loopkit.report.numbers import large
from loopkit.report.plots.style import COLOURS, DASHES, INK, MARKERS, PAPER, SOFT, figure_of, save, style, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Benchmarks = Mapping[str, Mapping[str, Any]]
"""JSON of early-exit benchmarks, by the name that each is to have in the plot."""

_SIZES = {"^": 14, "v": 14, "P": 14}  # points, so that the number inside stands on colour

_OFF_TOP = 3.0  # perplexities above this many times the lowest are named and not drawn

CIRCUMSTANCES = ("device", "machine", "dtype", "batch", "window", "read_as", "loops")
"""What must be the same for two speeds or perplexities to mean the same, beside the timed slice."""


def plot_frontier(benchmarks: Benchmarks, path: Path) -> Path:
    """Draw perplexity against tokens per second.

    Args:
        benchmarks: JSON of ``exit_benchmark``, by name.
        path: Where the SVG goes.

    Raises:
        ValueError: If there is none.
    """
    with style():
        return save(draw_frontier(benchmarks), path, _describe(benchmarks))


def draw_frontier(benchmarks: Benchmarks) -> Figure:
    """The figure of ``plot_frontier``, to be drawn under ``style()``.

    Perplexities more than three times the lowest are named and not drawn: they would flatten all others to one line.
    """
    if not benchmarks:
        raise UserError("there is no benchmark to draw")
    drawn, (panel,) = figure_of(1, height=3.9)
    exits = sorted({name for benchmark in benchmarks.values() for name in benchmark["exits"]})
    every = [row["token_ppl"] for benchmark in benchmarks.values() for row in _points(benchmark)]
    top = _OFF_TOP * min(every) if every else 0.0
    for number, (run, benchmark) in enumerate(benchmarks.items()):
        _run(panel, number, run, benchmark, top, name_exits=len(exits) > 1)
    panel.set_ylabel("perplexity (per token)")
    panel.set_xlabel("tokens per second, measured: " + _measured(benchmarks))
    _speed_axis(panel)
    panel.margins(x=0.11, y=0.14)
    if not every:
        panel.text(0.5, 0.5, "no depth has a finite perplexity", transform=panel.transAxes, ha="center", color=SOFT)
    _legend(drawn, panel, exits)
    heading = f"{next(iter(benchmarks))}: quality against speed" if len(benchmarks) == 1 else "Quality against speed"
    title(drawn, heading, "number in a point: loops, each depth run alone")
    return drawn


def _points(benchmark: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Depths and exits that have a finite perplexity."""
    return [row for row in [*benchmark["frontier"], *benchmark["exits"].values()] if "token_ppl" in row]


def _run(panel: Axes, number: int, name: str, benchmark: Mapping[str, Any], top: float, *, name_exits: bool) -> None:
    """One run: a numbered point per depth, and a hollow one per exit."""
    look = number % len(COLOURS)
    colour, marker = COLOURS[look], MARKERS[look]
    rows = [row for row in benchmark["frontier"] if row.get("token_ppl", math.inf) <= top]
    panel.plot(
        [row["tokens_per_s"] for row in rows],
        [row["token_ppl"] for row in rows],
        color=colour,
        linestyle=DASHES[look],
        linewidth=1.3,
        marker=marker,
        markersize=_SIZES.get(marker, 11),
        label=name + _off_top(benchmark, top),
    )
    for row in rows:
        at = (row["tokens_per_s"], row["token_ppl"])
        # not the paper's white, which a dark page turns dark
        inside: dict[str, Any] = {"color": "#ffffff", "weight": "bold", "fontsize": 8}
        panel.annotate(str(row["depth"]), at, ha="center", va="center_baseline", **inside)
    for exit, row in benchmark["exits"].items():
        if row.get("token_ppl", math.inf) > top:
            continue
        at = (row["tokens_per_s"], row["token_ppl"])
        panel.plot(*at, linestyle="", marker=marker, markersize=9, mfc=PAPER, mec=colour, mew=1.8, zorder=3)
        text = f"{exit} " * name_exits + f"{row['average_loops']:.2f}"
        above: dict[str, Any] = {"xytext": (0, 8), "textcoords": "offset points", "va": "bottom", "ha": "center"}
        panel.annotate(text, at, fontsize=8, color=INK, **above)


def _off_top(benchmark: Mapping[str, Any], top: float) -> str:
    """Which depths and exits cost too much to be drawn."""
    rows = {str(row["depth"]): row for row in benchmark["frontier"]} | benchmark["exits"]
    off = {name: row for name, row in rows.items() if row.get("token_ppl", math.inf) > top}
    if not off:
        return ""
    costs = [row["token_ppl"] for row in off.values() if "token_ppl" in row]
    least = f"perplexity {digits(min(costs), 3)} or more" if costs else "perplexity not finite"
    return f"\n(off the top: {', '.join(off)}; {least})"


def _speed_axis(panel: Axes) -> None:
    """Logarithmic, because half the loops are about twice the speed."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: large(value)))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _legend(drawn: Figure, panel: Axes, exits: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles, labels = panel.get_legend_handles_labels()
    if exits:
        hollow = Line2D([], [], linestyle="", marker="o", markersize=8, mfc=PAPER, mec=SOFT, mew=1.6)
        by = f" by {exits[0]}" if len(exits) == 1 else ""
        handles, labels = [*handles, hollow], [*labels, f"hollow: early exit{by},\nwith its average loops"]
    drawn.legend(handles, labels, loc="outside lower left", ncols=2, markerscale=0.7)


def _measured(benchmarks: Benchmarks) -> str:
    """Where and how, or in what the benchmarks differ."""
    first = next(iter(benchmarks.values()))
    if differing := differences(list(benchmarks.values())):
        return f"not alike, {', '.join(differing)} differ"
    where = f"cpu ({first['machine']['cores']} cores)" if first["device"] == "cpu" else first["device"]
    size = f"{first['timed']['sequences']} sequences of {first['window']}"
    return f"{first['dtype']}, batch {first['batch']}, {size}, {where}"


def differences(benchmarks: Sequence[Mapping[str, Any]]) -> list[str]:
    """In which circumstances benchmarks differ, so that their figures do not mean the same."""
    found = [name for name in CIRCUMSTANCES if any(b.get(name) != benchmarks[0].get(name) for b in benchmarks)]
    if any(_slice(b) != _slice(benchmarks[0]) for b in benchmarks):
        found.append("timed slice")
    return found


def _slice(benchmark: Mapping[str, Any]) -> tuple[Any, ...]:
    timed, tokenizer = benchmark["timed"], benchmark["tokenizer"]
    return (*(timed[name] for name in ("split", "data", "first_sequence", "sequences")), tokenizer["fingerprint"])


def _describe(benchmarks: Benchmarks) -> str:
    runs = []
    for name, benchmark in benchmarks.items():
        points = [
            f"{digits(row['token_ppl'])} at {large(row['tokens_per_s'])} tokens/s with {row['depth']} loops"
            for row in benchmark["frontier"]
            if "token_ppl" in row
        ]
        points += [
            f"{digits(row['token_ppl'])} at {large(row['tokens_per_s'])} tokens/s with {exit}"
            for exit, row in benchmark["exits"].items()
            if "token_ppl" in row
        ]
        runs.append(f"{name}: " + ", ".join(points))
    return "Token perplexity against measured speed. " + "; ".join(runs)
