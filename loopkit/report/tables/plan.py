"""A plan as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import size
from loopkit.report.tables.cluster import cluster_report


def plan_report(found: Mapping[str, Any]) -> RenderableType:
    """Facts of a plan, then a row for each depth.

    Args:
        found: What ``loopkit plan --json`` prints.
    """
    depths = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("depth", "effective parameters", "forward FLOPs per token", "KV cache per token"):
        depths.add_column(column, justify="right")
    effective = found["parameters"]["effective"]
    for row in found["depths"]:
        count = effective.get(str(row["depth"]))
        cells = ["" if count is None else f"{count:,}", scaled(row["forward_flops_per_token"], "")]
        depths.add_row(str(row["depth"]), *cells, size(row["kv_cache_bytes_per_token"]))
    parts: list[RenderableType] = [Text(found["recipe"], style="bold"), facts_table(_facts(found)), Text(), depths]
    if "cluster" in found:
        parts += [Text(), cluster_report(found["cluster"], found["devices"])]
    return Group(*parts)


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """A name and a text in each line."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in facts:
        table.add_row(name, text)
    return table


def _facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    parameters, memory, loops = found["parameters"], found["memory_bytes"], found["loops"]
    parts = ", ".join(f"{name} {count:,}" for name, count in parameters["parts"].items())
    fixed = memory["parameters"] + memory["gradients"] + memory["optimizer"]
    facts = [
        ("parameters", f"{parameters['unique']:,}, of which every loop uses {parameters['looped']:,}"),
        ("", parts),
        ("vocabulary", f"{found['vocabulary']:,}"),
        ("loops", f"{loops['min']} to {loops['max']}, mean {loops['mean']:.3g}"),
        ("training", f"{scaled(found['training_flops_per_token'], 'FLOP')} per token at the mean number of loops"),
        ("micro-batch", f"sequences: {found['micro_batch']}; per step and device: {found['accumulation']}"),
        ("memory", f"{size(memory['total'])} per device: {size(fixed)} for parameters, gradients and optimizer,"),
        ("", f"{size(memory['activations'] + memory['logits'])} for activations and logits of the deepest step"),
    ]
    if "steps" not in found:
        return [*facts, ("epochs", f"{found['epochs']:g}; --data reads the data and counts the steps")]
    share = f"{found['mfu']:.0%} of {scaled(found['ceiling']['flops_per_s'], 'FLOP/s')}"
    source = {"matmul": ", measured on this machine", "table": ", the device's data sheet"}.get(
        found["ceiling"]["source"], ""
    )
    return [
        *facts,
        ("steps", f"{found['steps']:,}, {found['tokens']:,} tokens, {scaled(found['training_flops'], 'FLOP')}"),
        ("time", f"{duration(found['seconds'])} at {found['tokens_per_s']:,.0f} tokens/s, {share}{source}"),
    ]


def scaled(count: float, unit: str) -> str:
    """A number in the decimal unit that fits."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if count < 1000:
            return f"{count:.3g} {prefix}{unit}".strip()
        count /= 1000
    return f"{count:.3g} E{unit}"


def duration(seconds: float) -> str:
    """A time in the two units that fit."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{days:.1f} days"
