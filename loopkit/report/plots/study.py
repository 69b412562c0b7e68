"""The plots of a study: state norm and perplexity against depth, an arm a line, and the norms of single tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from loopkit.report.plots.depth import depth_axis
from loopkit.report.plots.style import COLOURS, MARKERS, figure_of, save, style, title
from loopkit.report.plots.trajectory import describe, draw_paths, draw_stability, has_trajectory, look
from loopkit.report.row import drawn_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]
UNUSABLE = 2.0
"""Perplexities beyond this multiple of the best one are left out of the plot, and counted in its legend."""

CROWDED = 24
"""Depths beyond which their axis is logarithmic and only some points are marked."""


def plot_study(found: Json, name: str, profile: str, folder: Path) -> list[Path]:
    """Draw everything a results file holds.

    Args:
        found: One profile of a results file.
        name: Title of the study.
        profile: Its scale.
        folder: Where the SVGs go.
    """
    about = f"profile {profile}, {found['date'][:10]}, mean over {_seeds(found)}"
    with style():
        written = [
            save(draw_depths(found, name, about), folder / "depths.svg", f"{name}: norm and perplexity by depth"),
            save(draw_tokens(found, name, about), folder / "token_norms.svg", f"{name}: norms of tokens by arm"),
        ]
        first = {arm["label"]: next(iter(arm["seeds"].values()))["evaluation"] for arm in found["arms"].values()}
        if any(map(has_trajectory, first.values())):
            about = f"profile {profile}, {found['date'][:10]}, first seed"
            written += [
                save(draw_stability(first, name, about), folder / "stability.svg", describe(first)),
                save(draw_paths(first, name, about), folder / "paths.svg", describe(first)),
            ]
    return written


def _seeds(found: Json) -> str:
    seeds = sorted({seed for arm in found["arms"].values() for seed in arm["seeds"]}, key=int)
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"


def draw_depths(found: Json, name: str, about: str) -> Figure:
    """State norm by loop above, perplexity by depth below, to be drawn under ``style()``."""
    drawn, (norms, perplexity) = figure_of(2, width=9.5, height=3.0)
    every: list[int] = []
    best = min((value for arm in found["arms"].values() for value in _line(arm, "token_ppl")[1]), default=0.0)
    for index, arm in enumerate(found["arms"].values()):
        drawn_as = look(index)
        depths, values = _line(arm, "state_norm.mean")
        norms.plot(depths, values, label=arm["label"], **drawn_as)
        every += depths
        depths, values = _line(arm, "token_ppl")
        shown = [(d, v) for d, v in zip(depths, values, strict=True) if v <= UNUSABLE * best]
        hidden = len(values) - len(shown)
        label = arm["label"] + (f" ({hidden} above {UNUSABLE:g} times the best)" if hidden else "")
        perplexity.plot([d for d, _ in shown], [v for _, v in shown], label=label, **drawn_as)
    norms.set_yscale("log")
    norms.set_ylabel("state norm ‖s‖₂, token mean")
    perplexity.set_ylabel("perplexity (per token)")
    perplexity.set_xlabel("depth (loops)")
    for panel in (norms, perplexity):
        depth_axis(panel, sorted(set(every)) or [1])
        if len(set(every)) > CROWDED:  # a few of the depths far out would press all others against the axis
            panel.set_xscale("log")
            panel.set_xlim(left=min(every) * 0.9)
            panel.xaxis.set_major_formatter("{x:g}")
            for line in panel.get_lines():
                line.set_markevery(max(len(list(line.get_xdata())) // 12, 1))  # type: ignore[arg-type]
        _legend(panel)
    title(drawn, name, about)
    return drawn


def draw_tokens(found: Json, name: str, about: str) -> Figure:
    """Median, mean, 99th percentile and maximum of the last state's token norms, an arm a row."""
    drawn, (panel,) = figure_of(1, width=8.0, height=3.4)
    arms = list(found["arms"].values())
    for index, (key, label) in enumerate(
        (("median", "median"), ("mean", "mean"), ("p99", "99th percentile"), ("max", "maximum"))
    ):
        lines = [_line(arm, f"state_norm.{key}")[1] for arm in arms]
        points = [(line[-1], place) for place, line in enumerate(lines) if line]
        values, places = [value for value, _ in points], [place for _, place in points]
        panel.plot(values, places, linestyle="", marker=MARKERS[index], color=COLOURS[index], label=label)
    panel.set_yticks(range(len(arms)), [arm["label"] for arm in arms])
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.set_xlabel("state norm of the last loop, per token")
    panel.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=4)
    title(drawn, name, about)
    return drawn


def _legend(panel: Axes) -> None:
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _line(arm: Json, figure: str) -> tuple[list[int], list[float]]:
    """A figure of an arm by depth, mean over its seeds; depths where a seed lacks it are left out."""
    runs: list[Sequence[Json]] = [entry["evaluation"]["depths"] for entry in arm["seeds"].values()]
    depths, values = [], []
    for rows in zip(*runs, strict=True):
        found = [drawn_at(row, figure) for row in rows]
        if None not in found:
            depths.append(rows[0]["depth"])
            values.append(fmean(value for value in found if value is not None))
    return depths, values
