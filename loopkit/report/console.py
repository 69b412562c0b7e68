"""The console that tables are printed on: at most 80 columns, colours on a terminal only."""

from __future__ import annotations

from typing import IO

from rich.console import Console

WIDTH = 80


class PipedConsole(Console):
    """A console that raises on a closed pipe, so that the command line ends every command in the same way."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(file: IO[str] | None = None) -> Console:
    """Build a console for tables.

    Colours appear on a terminal only, and never if ``NO_COLOR`` is set.

    Args:
        file: Where to write; standard output by default.
    """
    piped = PipedConsole(file=file, highlight=False, emoji=False, markup=False)
    piped.width = min(piped.width, WIDTH)
    return piped
