"""How plots look: one style for all, readable in print, in dark mode and by colour-blind readers.

Every line has a marker or a dash of its own besides its colour. An SVG carries its own paper, so it is readable on any
page; where the reader's system is dark, a style rule inside the file turns paper and ink together. The colours of data
have a contrast of at least 3 to 1 against both papers.
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
"""Paper, text, secondary text, grid lines, and the shade of the trained range, in light."""

_DARK = {PAPER: "#10141a", INK: "#e6e9ec", SOFT: "#a4adb7", GRID: "#2b323a", SHADE: "#1d242c"}

COLOURS = ("#0077bb", "#d55e00", "#00916a", "#b0588f", "#7a7a7a", "#a07800")
"""Blue, vermilion, green, purple, grey, ochre: told apart under every common colour blindness, in this order."""

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1.5)), (0, (8, 2)))

_WIDE = 10.0  # values that span more than this factor get a logarithmic axis

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
    """Draw inside of this: the settings of loopkit's plots, and nobody else's."""
    import matplotlib

    with matplotlib.rc_context(_RC):
        yield


def figure_of(rows: int, *, width: float = 7.0, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    """A figure with panels one below the other, sharing nothing but their width.

    Args:
        rows: Number of panels.
        width: Of the figure, in inches.
        height: Of a panel, in inches.
    """
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height * rows + 0.6), layout="constrained")
    panels = drawn.subplots(rows, 1, squeeze=False)[:, 0]
    return drawn, list(panels)


def title(figure: Figure, text: str, below: str) -> None:
    """Put a title with a smaller line below it on top of a figure."""
    figure.suptitle(text, x=0.015, ha="left", fontsize=12, fontweight="bold")
    figure.axes[0].set_title(below, loc="left", fontsize=9, color=SOFT, pad=8)


def logarithmic(panel: Axes, values: Sequence[float]) -> None:
    """Give a panel a logarithmic axis where a linear one would hide all but the largest values."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    span = max(values) / min(values) if values and min(values) > 0 else 1
    if span > _WIDE:
        panel.set_yscale("log")
        panel.yaxis.set_minor_formatter(NullFormatter())
    if _WIDE < span < 1e3:
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def loop_colours(loops: int) -> list[tuple[float, float, float]]:
    """One colour per loop, blue for the first to vermilion for the last: an order that every eye sees."""
    from matplotlib.colors import to_rgb

    first, last = to_rgb(COLOURS[0]), to_rgb(COLOURS[1])
    shares = [index / max(loops - 1, 1) for index in range(loops)]
    return [tuple(a + (b - a) * share for a, b in zip(first, last, strict=True)) for share in shares]  # type: ignore[misc]


def svg(figure: Figure, description: str) -> str:
    """The figure as a self-contained SVG, the same bytes for the same data.

    Args:
        figure: What was drawn.
        description: What it shows, for readers who cannot see it.
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
        figure: What was drawn.
        path: Ends in ``.svg``; its folder is made if needed.
        description: What it shows, for readers who cannot see it.
    """
    with file_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg(figure, description), encoding="utf-8")
    return path
