"""The table of an early-exit benchmark, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import ABSENT, count, figure, figures, large
from loopkit.report.row import NOT_FINITE, cells, is_lost

Benchmark = Mapping[str, Any]
"""The JSON of ``exit_benchmark``, read back."""


def exit_report(benchmark: Benchmark) -> RenderableType:
    """Everything that an early-exit benchmark found.

    Args:
        benchmark: Its JSON.
    """
    checkpoint = f", checkpoint {benchmark['checkpoint']}" if "checkpoint" in benchmark else ""
    name = benchmark.get("run") or benchmark.get("recipe") or "a model"
    parts: list[RenderableType] = [Text(f"{name}{checkpoint}: early exit", style="bold"), _pairs(_facts(benchmark)), ""]
    parts.append(_contest(benchmark))
    if benchmark["exits"]:
        parts += ["", _where(benchmark)]
    return Group(*parts, "", _pairs(_legend(benchmark)))


def _facts(benchmark: Benchmark) -> dict[str, str]:
    machine = benchmark["machine"]
    cores = f"{machine['cores']} cores, {machine['threads']} threads"
    facts = {
        "timed": _slice(benchmark["timed"], benchmark["window"]),
        "calibrated": _slice(benchmark["calibration"], benchmark["window"]),
        "arithmetic": f"{benchmark['dtype']}, batch {benchmark['batch']}, no cache",
        "device": f"{benchmark['device']}; {machine['processor']}, {cores}",
        "measured": f"{benchmark['date']}, median of {_repeats(benchmark)}",
    }
    return facts if benchmark["exits"] else {name: text for name, text in facts.items() if name != "calibrated"}


def _repeats(benchmark: Benchmark) -> str:
    times = len(benchmark["fixed"]["seconds"])
    return "one run" if times == 1 else f"{times} runs, taking turns"


def _slice(part: Mapping[str, Any], window: int) -> str:
    first, number = part["first_sequence"], part["sequences"]
    which = f"sequences {count(first + 1)} to {count(first + number)}"
    return f"{part['split']}, {which}, of {count(window)}; {count(part['tokens_scored'])} tokens scored"


def _contest(benchmark: Benchmark) -> RenderableType:
    """A row per fixed depth and exit: how good, how fast."""
    full = benchmark["fixed"]
    rows = [*benchmark["frontier"], *benchmark["exits"].values()]
    names = [f"{row['depth']} loop{'s' * (row['depth'] > 1)}" for row in benchmark["frontier"]]
    columns = {
        "loops\n(mean)": [f"{row.get('depth', row.get('average_loops')):.2f}" for row in rows],
        "token\nppl": cells(rows, "token_ppl", figures),
        "against\nall loops": [_change(row, full) for row in rows],
        "tokens/s": [large(row["tokens_per_s"]) for row in rows],
        "speed-up": [f"{row['tokens_per_s'] / full['tokens_per_s']:.2f}x" for row in rows],
        "slowest /\nfastest": [f"{max(row['seconds']) / min(row['seconds']):.2f}" for row in rows],
    }
    return _table("", [*names, *benchmark["exits"]], columns)


def _change(row: Mapping[str, Any], full: Mapping[str, Any]) -> str:
    """Relative change of the perplexity."""
    if is_lost(row, "token_ppl") or is_lost(full, "token_ppl"):
        return NOT_FINITE
    if "token_ppl" not in row or "token_ppl" not in full:
        return ABSENT
    change = row["token_ppl"] / full["token_ppl"] - 1
    return f"{change:+.1%}" if abs(change) < 10 else f"x {figure(change + 1, 2)}"


def _where(benchmark: Benchmark) -> RenderableType:
    """A row per exit: what was chosen, and where sequences stopped."""
    exits = benchmark["exits"]
    rows = list(exits.values())
    columns = {
        "threshold": [figure(row["threshold"]) if "threshold" in row else "never" for row in rows],
        "loops when\ncalibrated": [f"{row['calibration']['average_loops']:.2f}" for row in rows],
        "core calls": [count(row["core_calls"]) for row in rows],
        "stopped after\nloop 1, 2, ...": [_counts(row["exits_by_loop"]) for row in rows],
    }
    return _table("exit", list(exits), columns)


def _counts(by_loop: Sequence[int]) -> str:
    """As many as a line can hold; loops where nobody stopped are left out of long ones."""
    if len(by_loop) <= 6:
        return " ".join(map(str, by_loop))
    busy = sorted(((number, k) for k, number in enumerate(by_loop, start=1) if number), reverse=True)
    shown = " ".join(f"{number} at {k}" for number, k in sorted(busy[:3], key=lambda pair: pair[1]))
    return shown + " ..." * (len(busy) > 3)


def _table(heading: str, names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="bold")
    table.add_column(heading, overflow="fold", vertical="bottom", max_width=18)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True, vertical="bottom")
    for name, *line in zip(names, *columns.values(), strict=True):
        table.add_row(name, *line)
    return table


def _legend(benchmark: Benchmark) -> dict[str, str]:
    lines = {}
    if benchmark["exits"]:
        tolerance = f"{benchmark['tolerance']:.3g}"
        lines["threshold"] = (
            f"of the fewest loops whose ppl is at most 1 + {tolerance} times that of all loops, when calibrated"
        )
    lines["tokens/s"] = "each row run alone; reading out, scoring and deciding included"
    return lines | {f"note {number}": note for number, note in enumerate(benchmark["notes"], start=1)}


def _pairs(lines: Mapping[str, str]) -> RenderableType:
    """Terms and what they say, in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for term, text in lines.items():
        grid.add_row(term, text)
    return Padding(grid, (0, 0, 0, 2))
