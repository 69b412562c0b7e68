"""Where tables are printed: at most 80 columns, colours on a terminal alone."""

from __future__ import annotations

from typing import IO

from rich.console import Console

WIDTH = 80


def console(file: IO[str] | None = None) -> Console:
    """A console for tables.

    Colours appear on a terminal only, and not where ``NO_COLOR`` is set.

    Args:
        file: Where to write; standard output by default.
    """
    made = Console(file=file, highlight=False, emoji=False, markup=False)
    made.width = min(made.width, WIDTH)
    return made
