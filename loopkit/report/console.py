"""Where tables are printed: at most 80 columns, colours on a terminal alone."""

from __future__ import annotations

from typing import IO

from rich.console import Console

WIDTH = 80


class PipedConsole(Console):
    """A console that leaves a closed pipe to the command line, which ends all commands in the same way."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(file: IO[str] | None = None) -> Console:
    """A console for tables.

    Colours appear on a terminal only, and not where ``NO_COLOR`` is set.

    Args:
        file: Where to write; standard output by default.
    """
    made = PipedConsole(file=file, highlight=False, emoji=False, markup=False)
    made.width = min(made.width, WIDTH)
    return made
