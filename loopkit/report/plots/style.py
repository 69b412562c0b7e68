"""The style of all plots: readable in print, in dark mode and by colour-blind readers.

Lines differ in marker and dash as well as in colour. An SVG contains its own background, so it is readable on any page;
if the reader's system is in dark mode, a style rule inside the file swaps background and text colours together. Data
colours have a contrast of at least 3 to 1 against both backgrounds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopkit.errors import file_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, INK, SOFT, GRID, SHADE = "#fffffe", "#24292e", "#586069", "#e1e4e8", "#eef1f4"
"""Background, text, secondary text, grid lines and the shade of the trained range, in light mode."""

_DARK = {PAPER: "#10141a", INK: "#e6e9ec", SOFT: "#a4adb7", GRID: "#2b323a", SHADE: "#1d242c"}

COLOURS = ("#0077bb", "#d55e00", "#00916a", "#b0588f", "#7a7a7a", "#a07800")
"""Blue, vermilion, green, purple, grey, ochre: distinguishable with every common form of colour blindness."""

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1.5)), (0, (8, 2)))

_WIDE = 10.0  # a larger ratio of values gets a logarithmic axis

_RC: dict[Any, Any] = {
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 11,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "path",
    "svg.hashsalt": "loopkit",
    "font.family": ["DejaVu Sans"],
}


@contextmanager
def style() -> Iterator[None]:
    """Apply the settings of loopkit's plots, inside of this context only."""
    import matplotlib

    with matplotlib.rc_context(_RC):
        yield


def figure_of(rows: int, *, width: float = 7.0, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    """Build a figure with panels one below another.

    Args:
        rows: Number of panels.
        width: Width of the figure in inches.
        height: Height of a panel in inches.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, 1, squeeze=False)[:, 0]
    return figure, list(panels)


def title(figure: Figure, text: str, subtitle: str) -> None:
    """Add a title with a smaller subtitle."""
    figure.suptitle(text, x=0.015, ha="left", fontsize=12, fontweight="bold")
    figure.axes[0].set_title(subtitle, loc="left", fontsize=9, color=SOFT, pad=8)


def logarithmic(panel: Axes, values: Sequence[float]) -> None:
    """Make the y axis of a panel logarithmic if a linear one would show only the largest values."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    span = max(values) / min(values) if values and min(values) > 0 else 1
    if span > _WIDE:
        panel.set_yscale("log")
        panel.yaxis.set_minor_formatter(NullFormatter())
    if _WIDE < span < 1e3:
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def line_style(index: int) -> dict[str, Any]:
    """Return colour, marker and dash of the line with this index; beyond the last colour lines are drawn in ink."""
    count = len(COLOURS)
    return {
        "color": COLOURS[index] if index < count else INK,
        "marker": MARKERS[index % count],
        "linestyle": DASHES[index % count],
    }


def mark_every(num_points: int) -> int:
    """Return the number of points from one marker to the next, so that markers do not overlap."""
    return max(num_points // 12, 1)


def annotate_empty(panel: Axes, text: str) -> None:
    """Print in the middle of a panel why it is empty."""
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", color=SOFT)


def loop_colours(loops: int) -> list[tuple[float, float, float]]:
    """Interpolate one colour per loop, from blue for the first to vermilion for the last."""
    from matplotlib.colors import to_rgb

    first, last = to_rgb(COLOURS[0]), to_rgb(COLOURS[1])
    shares = [index / max(loops - 1, 1) for index in range(loops)]
    return [tuple(a + (b - a) * share for a, b in zip(first, last, strict=True)) for share in shares]  # type: ignore[misc]


def to_svg(figure: Figure, description: str) -> str:
    """Render a figure as a self-contained SVG, reproducible to the byte.

    Args:
        figure: The figure.
        description: Text alternative for screen readers.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Description": description, "Creator": "loopkit"})
    text = buffer.getvalue()
    start = text.index("<defs>")
    return text[:start] + _dark_rules() + text[start:]


def _dark_rules() -> str:
    rules = [
        f'[style*="{name}: {light}"]{{{name}:{dark} !important}}'
        for light, dark in _DARK.items()
        for name in ("fill", "stroke")
    ]
    return "<style>@media (prefers-color-scheme: dark){" + "".join(rules) + "}</style>\n "


def save(figure: Figure, path: Path, description: str) -> Path:
    """Write a figure as SVG.

    Args:
        figure: The figure.
        path: An ``.svg`` file; its folder is created if needed.
        description: Text alternative for screen readers.
    """
    with file_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_svg(figure, description), encoding="utf-8")
    return path
