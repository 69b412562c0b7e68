"""The table of a plan for a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import format_bytes
from loopkit.report.tables.layout import plain_table

Layout = Mapping[str, Any]


def cluster_report(cluster: Mapping[str, Any], gpus: int) -> RenderableType:
    """Lay out the memory of every ZeRO stage at one number of GPUs, then the fastest layout for each number.

    Args:
        cluster: ``cluster`` of a plan.
        gpus: The number of GPUs whose memory is listed; if it was not planned, the next smaller one that was.
    """
    layouts: Sequence[Layout] = cluster["layouts"]
    counts = sorted({layout["gpus"] for layout in layouts})
    chosen = max(count for count in counts if count <= gpus)
    at_chosen = [layout for layout in layouts if layout["gpus"] == chosen]
    memory = format_bytes(cluster["machines"]["memory"])
    title = f"memory on each of {chosen} GPU{'s' if chosen > 1 else ''} of {memory}"
    return Group(
        Text(title, style="bold"),
        _memory(at_chosen),
        Text("\nthe fastest layout that fits", style="bold"),
        _fastest([fastest([item for item in layouts if item["gpus"] == count]) for count in counts]),
    )


def fastest(layouts: Sequence[Layout]) -> Layout:
    """Return the fastest layout that fits, among equals the lowest ZeRO stage; if none fits, the smallest."""
    fitting = [layout for layout in layouts if layout["fits"]]
    if not fitting:
        return min(layouts, key=lambda layout: layout["memory_bytes"]["total"])
    return min(fitting, key=lambda layout: (round(layout["step_s"], 9), layout["stage"]))


def _memory(layouts: Sequence[Layout]) -> Table:
    averaged = any(layout["memory_bytes"].get("average") for layout in layouts)
    weights = "wts+ema" if averaged else "weights"
    table = _table("ZeRO", "recomp.", "micro", weights, "grads", "optim", "buffers", "activ.", "logits", "total")
    for layout in layouts:
        parts = layout["memory_bytes"]
        names = ("gradients", "optimizer", "buffers", "activations", "logits")
        cells = [format_bytes(parts["parameters"] + parts.get("average", 0))]
        cells += [format_bytes(parts[name]) for name in names]
        total = format_bytes(parts["total"]) + ("" if layout["fits"] else " !")
        table.add_row(
            str(layout["stage"]),
            _yes_or_no(layout),
            str(layout["micro_batch"]),
            *cells,
            total,
        )
    return table


def _fastest(layouts: Sequence[Layout]) -> Table:
    table = _table("GPUs", "ZeRO", "recomp.", "micro", "memory", "step", "tokens/s", "MFU", "limit")
    for layout in layouts:
        cells = [str(layout["gpus"]), str(layout["stage"]), _yes_or_no(layout), str(layout["micro_batch"])]
        cells.append(format_bytes(layout["memory_bytes"]["total"]))
        speed = ["", "", ""]
        if "step_s" in layout:
            speed = [f"{layout['step_s']:.3g} s", f"{layout['tokens_per_s']:,.0f}", f"{layout['mfu']:.1%}"]
        table.add_row(*cells, *speed, layout["limit"])
    return table


def _yes_or_no(layout: Layout) -> str:
    return "yes" if layout["checkpointing"] else "no"


def _table(*names: str) -> Table:
    table = plain_table(gap=1)
    for name in names:
        table.add_column(name, justify="right")
    return table
