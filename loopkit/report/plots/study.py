"""The plots of a study: state norm and perplexity against depth, one line for each arm, and norms of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from loopkit.report.plots.depth import depth_axis
from loopkit.report.plots.style import COLOURS, MARKERS, figure_of, line_style, mark_every, save, style, title
from loopkit.report.plots.trajectory import describe, draw_paths, draw_stability, has_trajectory
from loopkit.report.row import drawable_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]
MAX_RATIO = 2.0
"""Perplexities above this multiple of the best one are not drawn; the legend counts them."""

MAX_LINEAR_DEPTHS = 24
"""With more depths, their axis is logarithmic and only some points have markers."""


def plot_study(results: Json, name: str, profile: str, folder: Path) -> list[Path]:
    """Draw all plots of a study.

    Args:
        results: One profile of a results file.
        name: Title of the study.
        profile: Name of the profile.
        folder: Where the SVGs go.
    """
    subtitle = f"profile {profile}, {results['date'][:10]}, mean over {_seeds(results)}"
    with style():
        paths = [
            save(draw_depths(results, name, subtitle), folder / "depths.svg", f"{name}: norm and perplexity by depth"),
            save(draw_tokens(results, name, subtitle), folder / "token_norms.svg", f"{name}: norms of tokens by arm"),
        ]
        first_seeds = {
            arm["label"]: next(iter(arm["seeds"].values()))["evaluation"] for arm in results["arms"].values()
        }
        if any(map(has_trajectory, first_seeds.values())):
            subtitle = f"profile {profile}, {results['date'][:10]}, first seed"
            paths += [
                save(draw_stability(first_seeds, name, subtitle), folder / "stability.svg", describe(first_seeds)),
                save(draw_paths(first_seeds, name, subtitle), folder / "paths.svg", describe(first_seeds)),
            ]
    return paths


def _seeds(results: Json) -> str:
    seeds = sorted({seed for arm in results["arms"].values() for seed in arm["seeds"]}, key=int)
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"


def draw_depths(results: Json, name: str, subtitle: str) -> Figure:
    """Draw state norm and perplexity by depth; call it under ``style()``."""
    figure, (norms, perplexity) = figure_of(2, width=9.5, height=3.0)
    all_depths: list[int] = []
    best = min((value for arm in results["arms"].values() for value in _line(arm, "token_ppl")[1]), default=0.0)
    for index, arm in enumerate(results["arms"].values()):
        look = line_style(index)
        depths, values = _line(arm, "state_norm.mean")
        norms.plot(depths, values, label=arm["label"], **look)
        all_depths += depths
        depths, values = _line(arm, "token_ppl")
        points = [(d, v) for d, v in zip(depths, values, strict=True) if v <= MAX_RATIO * best]
        num_hidden = len(values) - len(points)
        label = arm["label"] + (f" ({num_hidden} above {MAX_RATIO:g} times the best)" if num_hidden else "")
        perplexity.plot([d for d, _ in points], [v for _, v in points], label=label, **look)
    norms.set_yscale("log")
    norms.set_ylabel("state norm ‖s‖₂, token mean")
    perplexity.set_ylabel("perplexity (per token)")
    perplexity.set_xlabel("depth (loops)")
    for panel in (norms, perplexity):
        depth_axis(panel, sorted(set(all_depths)) or [1])
        if len(set(all_depths)) > MAX_LINEAR_DEPTHS:  # a few large depths would compress all others
            panel.set_xscale("log")
            panel.set_xlim(left=min(all_depths) * 0.9)
            panel.xaxis.set_major_formatter("{x:g}")
            for line in panel.get_lines():
                line.set_markevery(mark_every(len(list(line.get_xdata()))))  # type: ignore[arg-type]
        _legend(panel)
    title(figure, name, subtitle)
    return figure


def draw_tokens(results: Json, name: str, subtitle: str) -> Figure:
    """Draw median, mean, 99th percentile and maximum of the token norms of the last state, a row for each arm."""
    figure, (panel,) = figure_of(1, width=8.0, height=3.4)
    arms = list(results["arms"].values())
    for index, (key, label) in enumerate(
        (("median", "median"), ("mean", "mean"), ("p99", "99th percentile"), ("max", "maximum"))
    ):
        lines = [_line(arm, f"state_norm.{key}")[1] for arm in arms]
        points = [(line[-1], row) for row, line in enumerate(lines) if line]
        values, rows = [value for value, _ in points], [row for _, row in points]
        panel.plot(values, rows, linestyle="", marker=MARKERS[index], color=COLOURS[index], label=label)
    panel.set_yticks(range(len(arms)), [arm["label"] for arm in arms])
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.set_xlabel("state norm of the last loop, per token")
    panel.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=4)
    title(figure, name, subtitle)
    return figure


def _legend(panel: Axes) -> None:
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _line(arm: Json, metric: str) -> tuple[list[int], list[float]]:
    """Average a metric of an arm over its seeds, by depth; a depth that a seed lacks is left out."""
    runs: list[Sequence[Json]] = [entry["evaluation"]["depths"] for entry in arm["seeds"].values()]
    depths, values = [], []
    for rows in zip(*runs, strict=True):
        by_seed = [drawable_value(row, metric) for row in rows]
        if None not in by_seed:
            depths.append(rows[0]["depth"])
            values.append(fmean(value for value in by_seed if value is not None))
    return depths, values
