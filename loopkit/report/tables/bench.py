"""The table of a step benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loopkit.report.numbers import format_amount, format_bytes
from loopkit.report.tables.layout import facts_table, format_micro_batch


def bench_report(benchmark: Mapping[str, Any]) -> RenderableType:
    """Lay out a benchmark of training steps.

    Args:
        benchmark: The JSON of ``loopkit bench``.
    """
    return Group(Text(benchmark["recipe"], style="bold"), facts_table(_facts(benchmark)))


def _facts(benchmark: Mapping[str, Any]) -> list[tuple[str, str]]:
    seconds, ranks = benchmark["step_s"], benchmark["ranks"]
    devices = benchmark["device"] if ranks == 1 else f"{ranks} x {benchmark['device']}"
    facts = [
        ("on", f"{devices}, {benchmark['precision']}"),
        ("loops", f"{benchmark['loops']}, gradients through {benchmark['backprop']}"),
        ("micro-batch", format_micro_batch(benchmark)),
        ("step", f"{seconds['median']:.3g} s (median; {seconds['min']:.3g} to {seconds['max']:.3g} s)"),
        ("speed", f"{benchmark['tokens_per_s']:,.0f} tokens/s"),
    ]
    if "mfu" in benchmark:
        peak = f"{format_amount(benchmark['ceiling']['flops_per_s'], 'FLOP/s')}, measured with a matrix product"
        facts.append(("mfu", f"{benchmark['mfu']:.1%} of {peak}"))
    if "data_sheet" in benchmark:
        facts.append(("data sheet", format_amount(benchmark["data_sheet"]["flops_per_s"], "FLOP/s")))
    return [*facts, ("memory", f"{format_bytes(benchmark['peak_memory_bytes'])} at most")]
