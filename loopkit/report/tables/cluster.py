"""A recipe laid out on a cluster, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopkit.report.numbers import size

Layout = Mapping[str, Any]


def cluster_report(cluster: Mapping[str, Any], gpus: int) -> RenderableType:
    """The memory of every stage at one number of GPUs, then the fastest layout for each number.

    Args:
        cluster: ``cluster`` of a plan.
        gpus: The number whose memory is broken down; the next smaller one that was laid out, if this one was not.
    """
    layouts: Sequence[Layout] = cluster["layouts"]
    counts = sorted({layout["gpus"] for layout in layouts})
    chosen = max(count for count in counts if count <= gpus)
    here = [layout for layout in layouts if layout["gpus"] == chosen]
    head = f"on each of {chosen} GPU{'s' if chosen > 1 else ''} of {size(cluster['machines']['memory'])}"
    return Group(
        Text(f"memory {head}", style="bold"),
        _memory(here),
        Text("\nthe fastest layout that fits", style="bold"),
        _fastest([fastest([item for item in layouts if item["gpus"] == count]) for count in counts]),
    )


def fastest(layouts: Sequence[Layout]) -> Layout:
    """The fastest layout that fits, of equal ones the simplest; the smallest where none fits."""
    fitting = [layout for layout in layouts if layout["fits"]]
    if not fitting:
        return min(layouts, key=lambda layout: layout["memory_bytes"]["total"])
    return min(fitting, key=lambda layout: (round(layout["step_s"], 9), layout["stage"]))


def _memory(layouts: Sequence[Layout]) -> Table:
    table = _table("ZeRO", "recomp.", "micro", "weights", "grads", "optim", "buffers", "activ.", "logits", "total")
    for layout in layouts:
        parts = layout["memory_bytes"]
        cells = [size(parts[name]) for name in ("parameters", "gradients", "optimizer", "buffers", "activations")]
        total = size(parts["total"]) + ("" if layout["fits"] else " !")
        table.add_row(
            str(layout["stage"]), _word(layout), str(layout["micro_batch"]), *cells, size(parts["logits"]), total
        )
    return table


def _fastest(layouts: Sequence[Layout]) -> Table:
    table = _table("GPUs", "ZeRO", "recomp.", "micro", "memory", "step", "tokens/s", "MFU", "limit")
    for layout in layouts:
        cells = [str(layout["gpus"]), str(layout["stage"]), _word(layout), str(layout["micro_batch"])]
        cells.append(size(layout["memory_bytes"]["total"]))
        speed = ["", "", ""]
        if "step_s" in layout:
            speed = [f"{layout['step_s']:.3g} s", f"{layout['tokens_per_s']:,.0f}", f"{layout['mfu']:.1%}"]
        table.add_row(*cells, *speed, layout["limit"])
    return table


def _word(layout: Layout) -> str:
    return "yes" if layout["checkpointing"] else "no"


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, justify="right")
    return table
