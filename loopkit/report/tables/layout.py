"""The layouts that tables on a terminal share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.padding import Padding
from rich.table import Table

from loopkit.plural import plural


def ruled_table() -> Table:
    """Build an empty table with a rule below its heading."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")


def plain_table(gap: int = 2) -> Table:
    """Build an empty table without rules, its columns ``gap`` spaces apart."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))


def format_micro_batch(record: Mapping[str, Any]) -> str:
    """Describe the micro-batches of a step on one device, from ``micro_batch`` and ``accumulation`` of a record."""
    sequences = plural(record["micro_batch"], "sequence")
    return f"{sequences}; {plural(record['accumulation'], 'micro-batch')} in a step on each device"


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Build a table of names and texts; an empty name continues the text above."""
    table = plain_table()
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in facts:
        table.add_row(name, text)
    return table


def term_list(terms: Mapping[str, str | None], min_width: int | None = None) -> Padding:
    """Build an indented list of terms and their texts; a term without a text is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=min_width)
    grid.add_column(overflow="fold")
    for term, text in terms.items():
        if text is not None:
            grid.add_row(term, text)
    return Padding(grid, (0, 0, 0, 2))
