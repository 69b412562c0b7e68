"""The plot of early-exit benchmarks: perplexity against measured speed, for fixed depths and exits of each run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.errors import UserError
from loopkit.plural import plural
from loopkit.report.numbers import format_amount, format_value
from loopkit.report.plots.style import INK, PAPER, SOFT, annotate_empty, figure_of, line_style, save, style, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Benchmarks = Mapping[str, Mapping[str, Any]]
"""JSON of early-exit benchmarks, by their name in the legend."""

_SIZES = {"^": 14, "v": 14, "P": 14}  # in points: the number inside needs a coloured background

_MAX_RATIO = 3.0  # perplexities above this multiple of the lowest are named and not drawn

CONDITIONS = ("device", "machine", "dtype", "batch", "window", "read_as", "loops")
"""Settings that must be equal for two benchmarks to be comparable, in addition to the timed slice."""


def plot_frontier(benchmarks: Benchmarks, path: Path) -> Path:
    """Draw perplexity against tokens per second.

    Args:
        benchmarks: JSON of ``exit_benchmark``, by name.
        path: Where the SVG goes.

    Raises:
        UserError: If there is no benchmark.
    """
    with style():
        return save(draw_frontier(benchmarks), path, _describe(benchmarks))


def draw_frontier(benchmarks: Benchmarks) -> Figure:
    """Draw the figure of ``plot_frontier``; call it under ``style()``.

    Perplexities above three times the lowest are named and not drawn, because they would flatten all others.
    """
    if not benchmarks:
        raise UserError("no benchmark was given, so no frontier can be drawn")
    figure, (panel,) = figure_of(1, height=3.9)
    exits = sorted({name for benchmark in benchmarks.values() for name in benchmark["exits"]})
    perplexities = [row["token_ppl"] for benchmark in benchmarks.values() for row in _points(benchmark)]
    top = _MAX_RATIO * min(perplexities) if perplexities else 0.0
    for index, (run, benchmark) in enumerate(benchmarks.items()):
        _draw_run(panel, index, run, benchmark, top, name_exits=len(exits) > 1)
    panel.set_ylabel("perplexity (per token)")
    panel.set_xlabel("tokens per second, measured: " + _format_conditions(benchmarks))
    _speed_axis(panel)
    panel.margins(x=0.11, y=0.14)
    if not perplexities:
        annotate_empty(panel, "no depth has a finite perplexity")
    _add_legend(figure, panel, exits)
    heading = f"{next(iter(benchmarks))}: quality against speed" if len(benchmarks) == 1 else "Quality against speed"
    title(figure, heading, "numbers in markers: loops; each depth timed separately")
    return figure


def _points(benchmark: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the depths and exits that have a finite perplexity."""
    return [row for row in [*benchmark["frontier"], *benchmark["exits"].values()] if "token_ppl" in row]


def _draw_run(
    panel: Axes, index: int, name: str, benchmark: Mapping[str, Any], top: float, *, name_exits: bool
) -> None:
    """Draw one run: a numbered marker for each depth, and a hollow one for each exit."""
    look = line_style(index)
    colour, marker = look["color"], look["marker"]
    rows = [row for row in benchmark["frontier"] if row.get("token_ppl", math.inf) <= top]
    panel.plot(
        [row["tokens_per_s"] for row in rows],
        [row["token_ppl"] for row in rows],
        **look,
        linewidth=1.3,
        markersize=_SIZES.get(marker, 11),
        label=name + _not_drawn(benchmark, top),
    )
    for row in rows:
        at = (row["tokens_per_s"], row["token_ppl"])
        # not PAPER, which dark mode replaces
        text_style: dict[str, Any] = {"color": "#ffffff", "weight": "bold", "fontsize": 8}
        panel.annotate(str(row["depth"]), at, ha="center", va="center_baseline", **text_style)
    for exit, row in benchmark["exits"].items():
        if row.get("token_ppl", math.inf) > top:
            continue
        at = (row["tokens_per_s"], row["token_ppl"])
        panel.plot(*at, linestyle="", marker=marker, markersize=9, mfc=PAPER, mec=colour, mew=1.8, zorder=3)
        text = f"{exit} " * name_exits + f"{row['average_loops']:.2f}"
        offset: dict[str, Any] = {"xytext": (0, 8), "textcoords": "offset points", "va": "bottom", "ha": "center"}
        panel.annotate(text, at, fontsize=8, color=INK, **offset)


def _not_drawn(benchmark: Mapping[str, Any], top: float) -> str:
    """Name the depths and exits whose perplexity is too high to be drawn."""
    rows = {str(row["depth"]): row for row in benchmark["frontier"]} | benchmark["exits"]
    hidden = {name: row for name, row in rows.items() if row.get("token_ppl", math.inf) > top}
    if not hidden:
        return ""
    values = [row["token_ppl"] for row in hidden.values() if "token_ppl" in row]
    reason = f"perplexity {format_value(min(values), 3)} or more" if values else "perplexity not finite"
    return f"\n(not drawn: {', '.join(hidden)}; {reason})"


def _speed_axis(panel: Axes) -> None:
    """Make the speed axis logarithmic: half the loops give about twice the speed."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_amount(value)))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _add_legend(figure: Figure, panel: Axes, exits: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles, labels = panel.get_legend_handles_labels()
    if exits:
        hollow = Line2D([], [], linestyle="", marker="o", markersize=8, mfc=PAPER, mec=SOFT, mew=1.6)
        name = f" by {exits[0]}" if len(exits) == 1 else ""
        handles, labels = [*handles, hollow], [*labels, f"hollow: early exit{name},\nwith its average loops"]
    figure.legend(handles, labels, loc="outside lower left", ncols=2, markerscale=0.7)


def _format_conditions(benchmarks: Benchmarks) -> str:
    """Format the conditions of the benchmarks, or name those in which they differ."""
    first = next(iter(benchmarks.values()))
    if differing := differences(list(benchmarks.values())):
        return f"not comparable, {', '.join(differing)} differ"
    device = f"cpu ({first['machine']['cores']} cores)" if first["device"] == "cpu" else first["device"]
    size = f"{plural(first['timed']['sequences'], 'sequence')} of {first['window']}"
    return f"{first['dtype']}, batch {first['batch']}, {size}, {device}"


def differences(benchmarks: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the conditions in which benchmarks differ; any makes their values incomparable."""
    names = [name for name in CONDITIONS if any(b.get(name) != benchmarks[0].get(name) for b in benchmarks)]
    if any(_slice(b) != _slice(benchmarks[0]) for b in benchmarks):
        names.append("timed slice")
    return names


def _slice(benchmark: Mapping[str, Any]) -> tuple[Any, ...]:
    timed, tokenizer = benchmark["timed"], benchmark["tokenizer"]
    return (*(timed[name] for name in ("split", "data", "first_sequence", "sequences")), tokenizer["fingerprint"])


def _describe(benchmarks: Benchmarks) -> str:
    runs = []
    for name, benchmark in benchmarks.items():
        points = [
            f"{_point(row)} with {plural(row['depth'], 'loop')}" for row in benchmark["frontier"] if "token_ppl" in row
        ]
        points += [f"{_point(row)} with {exit}" for exit, row in benchmark["exits"].items() if "token_ppl" in row]
        runs.append(f"{name}: " + ", ".join(points))
    return "Token perplexity against measured speed. " + "; ".join(runs)


def _point(row: Mapping[str, Any]) -> str:
    return f"{format_value(row['token_ppl'])} at {format_amount(row['tokens_per_s'])} tokens/s"
