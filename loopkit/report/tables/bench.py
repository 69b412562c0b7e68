"""A benchmark as the terminal shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loopkit.report.numbers import size
from loopkit.report.tables.plan import facts_table, scaled


def bench_report(found: Mapping[str, Any]) -> RenderableType:
    """Facts of a benchmark.

    Args:
        found: What ``loopkit bench --json`` prints.
    """
    return Group(Text(found["recipe"], style="bold"), facts_table(_facts(found)))


def _facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    seconds, ranks = found["step_s"], found["ranks"]
    devices = found["device"] if ranks == 1 else f"{ranks} x {found['device']}"
    facts = [
        ("on", f"{devices}, {found['precision']}"),
        ("loops", f"{found['loops']}, gradients through {found['backprop']}"),
        ("micro-batch", f"sequences: {found['micro_batch']}; per step and device: {found['accumulation']}"),
        ("step", f"{seconds['median']:.3g} s (median; {seconds['min']:.3g} to {seconds['max']:.3g} s)"),
        ("speed", f"{found['tokens_per_s']:,.0f} tokens/s"),
    ]
    if "mfu" in found:
        top = f"{scaled(found['ceiling']['flops_per_s'], 'FLOP/s')}, a matrix product measured beside it"
        facts.append(("mfu", f"{found['mfu']:.1%} of {top}"))
    if "data_sheet" in found:
        facts.append(("data sheet", scaled(found["data_sheet"]["flops_per_s"], "FLOP/s")))
    return [*facts, ("memory", f"{size(found['peak_memory_bytes'])} at most")]
