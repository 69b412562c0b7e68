"""The table of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loopkit.report.numbers import format_amount, format_bytes, format_duration
from loopkit.report.tables.cluster import cluster_report
from loopkit.report.tables.layout import facts_table, format_micro_batch, plain_table


def plan_report(plan: Mapping[str, Any]) -> RenderableType:
    """Lay out a plan: its totals, then a row for each depth.

    Args:
        plan: The JSON of ``loopkit plan``.
    """
    depths = plain_table()
    for column in ("depth", "effective parameters", "forward FLOPs per token", "KV cache per token"):
        depths.add_column(column, justify="right")
    effective = plan["parameters"]["effective"]
    for row in plan["depths"]:
        count = effective.get(str(row["depth"]))
        cells = ["" if count is None else f"{count:,}", format_amount(row["forward_flops_per_token"], "")]
        depths.add_row(str(row["depth"]), *cells, format_bytes(row["kv_cache_bytes_per_token"]))
    parts: list[RenderableType] = [Text(plan["recipe"], style="bold"), facts_table(_facts(plan)), Text(), depths]
    if "cluster" in plan:
        parts += [Text(), cluster_report(plan["cluster"], plan["devices"])]
    return Group(*parts)


def _format_loops(loops: Mapping[str, Any]) -> str:
    if loops["min"] == loops["max"]:
        return str(loops["max"])
    return f"{loops['min']} to {loops['max']}, mean {loops['mean']:.3g}"


def _facts(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    parameters, memory, loops = plan["parameters"], plan["memory_bytes"], plan["loops"]
    parts = ", ".join(f"{name} {count:,}" for name, count in parameters["parts"].items())
    fixed = memory["parameters"] + memory["gradients"] + memory["optimizer"]
    average = memory.get("average", 0)
    averaged = f"{format_bytes(average)} for the average of the weights, " if average else ""
    total = format_bytes(memory["total"])
    facts = [
        ("parameters", f"{parameters['unique']:,}, of which every loop uses {parameters['looped']:,}"),
        ("", parts),
        ("vocabulary", f"{plan['vocabulary']:,}"),
        ("loops", _format_loops(loops)),
        (
            "training",
            f"{format_amount(plan['training_flops_per_token'], 'FLOP')} per token at the mean number of loops",
        ),
        ("micro-batch", format_micro_batch(plan)),
        (
            "memory",
            f"{total} per device: {format_bytes(fixed)} for parameters, gradients and optimizer,",
        ),
        (
            "",
            f"{averaged}{format_bytes(memory['activations'] + memory['logits'])} for activations and logits of the "
            "deepest step",
        ),
    ]
    if "steps" not in plan:
        return [*facts, ("epochs", f"{plan['epochs']:g}; run with --data to count the steps")]
    share = f"{plan['mfu']:.0%} of {format_amount(plan['ceiling']['flops_per_s'], 'FLOP/s')}"
    source = {"matmul": ", measured on this machine", "table": ", the device's data sheet"}.get(
        plan["ceiling"]["source"], ""
    )
    return [
        *facts,
        ("steps", f"{plan['steps']:,}, {plan['tokens']:,} tokens, {format_amount(plan['training_flops'], 'FLOP')}"),
        ("time", f"{format_duration(plan['seconds'])} at {plan['tokens_per_s']:,.0f} tokens/s, {share}{source}"),
    ]
