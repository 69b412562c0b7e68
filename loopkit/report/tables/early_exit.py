"""The table of an early-exit benchmark, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import ABSENT, format_amount, format_count, format_value, format_values
from loopkit.report.row import NOT_FINITE, format_cells, is_not_finite
from loopkit.report.tables.layout import ruled_table, term_list

Benchmark = Mapping[str, Any]
"""The JSON of ``exit_benchmark``."""


def exit_report(benchmark: Benchmark) -> RenderableType:
    """Lay out an early-exit benchmark.

    Args:
        benchmark: Its JSON.
    """
    checkpoint = f", checkpoint {benchmark['checkpoint']}" if "checkpoint" in benchmark else ""
    name = benchmark.get("run") or benchmark.get("recipe") or "a model"
    title = Text(f"{name}{checkpoint}: early exit", style="bold")
    parts: list[RenderableType] = [title, term_list(_facts(benchmark)), "", _speed_table(benchmark)]
    if benchmark["exits"]:
        parts += ["", _exit_table(benchmark)]
    return Group(*parts, "", term_list(_legend(benchmark)))


def _facts(benchmark: Benchmark) -> dict[str, str]:
    machine = benchmark["machine"]
    cores = f"{machine['cores']} cores, {machine['threads']} threads"
    facts = {
        "timed": _slice(benchmark["timed"], benchmark["window"]),
        "calibrated": _slice(benchmark["calibration"], benchmark["window"]),
        "precision": f"{benchmark['dtype']}, batch {benchmark['batch']}, no cache",
        "device": f"{benchmark['device']}; {machine['processor']}, {cores}",
        "measured": f"{benchmark['date']}, median of {_repeats(benchmark)}",
    }
    return facts if benchmark["exits"] else {name: text for name, text in facts.items() if name != "calibrated"}


def _repeats(benchmark: Benchmark) -> str:
    times = len(benchmark["fixed"]["seconds"])
    return "one run" if times == 1 else f"{times} interleaved runs"


def _slice(part: Mapping[str, Any], window: int) -> str:
    first, number = part["first_sequence"], part["sequences"]
    which = f"sequences {format_count(first + 1)} to {format_count(first + number)}"
    return f"{part['split']}, {which}, of {format_count(window)}; {format_count(part['tokens_scored'])} tokens scored"


def _speed_table(benchmark: Benchmark) -> RenderableType:
    """Lay out perplexity and speed, a row for each fixed depth and exit."""
    full = benchmark["fixed"]
    rows = [*benchmark["frontier"], *benchmark["exits"].values()]
    names = [f"{row['depth']} loop{'s' * (row['depth'] > 1)}" for row in benchmark["frontier"]]
    columns = {
        "loops\n(mean)": [f"{row.get('depth', row.get('average_loops')):.2f}" for row in rows],
        "token\nppl": format_cells(rows, "token_ppl", format_values),
        "change vs.\nall loops": [_change(row, full) for row in rows],
        "tokens/s": [format_amount(row["tokens_per_s"]) for row in rows],
        "speed-up": [f"{row['tokens_per_s'] / full['tokens_per_s']:.2f}x" for row in rows],
        "slowest /\nfastest": [f"{max(row['seconds']) / min(row['seconds']):.2f}" for row in rows],
    }
    return _table("", [*names, *benchmark["exits"]], columns)


def _change(row: Mapping[str, Any], full: Mapping[str, Any]) -> str:
    """Format the relative change of the perplexity."""
    if is_not_finite(row, "token_ppl") or is_not_finite(full, "token_ppl"):
        return NOT_FINITE
    if "token_ppl" not in row or "token_ppl" not in full:
        return ABSENT
    change = row["token_ppl"] / full["token_ppl"] - 1
    return f"{change:+.1%}" if abs(change) < 10 else f"x {format_value(change + 1, 2)}"


def _exit_table(benchmark: Benchmark) -> RenderableType:
    """Lay out the calibrated threshold and the loops after which sequences stopped, a row for each exit."""
    exits = benchmark["exits"]
    rows = list(exits.values())
    columns = {
        "threshold": [format_value(row["threshold"]) if "threshold" in row else "never" for row in rows],
        "loops in\ncalibration": [f"{row['calibration']['average_loops']:.2f}" for row in rows],
        "core calls": [format_count(row["core_calls"]) for row in rows],
        "stopped after\nloop 1, 2, ...": [_counts(row["exits_by_loop"]) for row in rows],
    }
    return _table("exit", list(exits), columns)


def _counts(by_loop: Sequence[int]) -> str:
    """Format the number of sequences that stopped after each loop; of many loops the three largest numbers."""
    if len(by_loop) <= 6:
        return " ".join(map(str, by_loop))
    ranked = sorted(((count, loop) for loop, count in enumerate(by_loop, start=1) if count), reverse=True)
    largest = " ".join(f"{count} at {loop}" for count, loop in sorted(ranked[:3], key=lambda pair: pair[1]))
    return largest + " ..." * (len(ranked) > 3)


def _table(heading: str, names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Table:
    table = ruled_table()
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
            f"fewest loops with a perplexity at most 1 + {tolerance} times that of all loops, on the calibration slice"
        )
    lines["tokens/s"] = "each row timed separately, with readout, scoring and exit decision"
    return lines | {f"note {number}": note for number, note in enumerate(benchmark["notes"], start=1)}
