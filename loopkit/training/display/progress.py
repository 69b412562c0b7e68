"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

PLAIN_SECONDS = 5.0


class Display:
    """Show the progress of training.

    Args:
        console: Where to write.
        quiet: Show nothing, as on ranks after the first.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.num_steps = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._shown = float("-inf")
        self._pace = Pace()

    @contextmanager
    def running(self, num_steps: int, done: int = 0) -> Iterator[None]:
        """Show a bar inside the block, if there is a terminal.

        Args:
            num_steps: Optimizer steps of the whole run.
            done: Steps already done.
        """
        self.num_steps, self._pace = num_steps, Pace()
        if self.quiet or not self.console.is_terminal:
            yield
            return
        columns = (TextColumn("{task.completed}/{task.total}"), BarColumn(None), TextColumn("{task.description}"))
        with Progress(*columns, console=self.console, expand=True) as self._bar:
            self._task = self._bar.add_task("", total=num_steps, completed=done)
            try:
                yield
            finally:
                self._bar = None

    def log(self, line: Mapping[str, Any]) -> None:
        """Show a line of metrics."""
        if self.quiet:
            return
        message = format_log_line(line, self._pace.seconds_left(line["step"], self.num_steps))
        if self._bar is not None:
            self._bar.update(self._task, completed=line["step"], description=message)
        elif time.monotonic() - self._shown >= PLAIN_SECONDS or line["step"] == self.num_steps:
            self._shown = time.monotonic()
            self.console.print(f"step {line['step']}/{self.num_steps}  {message}", highlight=False, soft_wrap=True)

    def preparing(self, what: str, characters: int) -> None:
        """Show periodically that data is being read."""
        if time.monotonic() - self._shown >= PLAIN_SECONDS:
            self._shown = time.monotonic()
            self.say(f"{what}: {si(characters)} characters")

    def say(self, text: str) -> None:
        """Print a message, above the bar if there is one."""
        if not self.quiet:
            self.console.print(text, highlight=False, soft_wrap=True, markup=False)


class Pace:
    """Remaining time, estimated from the steps of this process."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def seconds_left(self, step: int, num_steps: int) -> float | None:
        """Seconds to the last step; None until two steps are shown, because the first step is slower."""
        now = time.monotonic()
        if self.first is None:
            self.first = (step, now)
            return None
        steps = step - self.first[0]
        return (now - self.first[1]) / steps * (num_steps - step) if steps > 0 else None


def format_log_line(line: Mapping[str, Any], seconds_left: float | None) -> str:
    """Format a line of metrics: loss, loops, tokens/s, MFU, remaining time, memory."""
    fields = [
        f"loss {line['loss']:.4f}",
        f"loops {line['loops']}",
        f"{si(line['tokens_per_s'])} tok/s",
        "" if line["mfu"] is None else f"mfu {line['mfu']:.1%}",
        "" if seconds_left is None else f"eta {clock(seconds_left)}",
        f"mem {line['peak_memory_bytes'] / 2**30:.1f} GiB",
    ]
    return "  ".join(field for field in fields if field)


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, seconds_left = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def si(number: float) -> str:
    """``950``, ``12.3k``, ``4.56M``: about three digits."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
