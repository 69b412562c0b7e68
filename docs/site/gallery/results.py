"""Results on the page of a recipe: runs, metrics by depth, claims, and values reported in the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.site.gallery.evidence import Evidence
from docs.site.gallery.small_plot import loop_bars
from loopkit.report.pages.markdown import link, printed, prose, table
from loopkit.report.tables.depth import columns_of, markdown_lines
from loopkit.report.tables.study import VERDICTS, measurement

Json = Mapping[str, Any]
MAX_COLUMNS = 9
"""Columns of a table by depth; the results file has all of them."""


def runs_table(seeds: Mapping[str, Json]) -> str:
    """Write a row for each run: seed, cost, machine."""
    rows = []
    for seed, entry in seeds.items():
        machine = entry["machine"]
        rows.append(
            (
                seed,
                f"{entry['parameters']:,}",
                f"{entry['steps']:,}",
                f"{entry['tokens']:,}",
                f"{entry['train_seconds']:,.0f} s",
                _machine(machine),
                f"`{entry['recipe_hash']}`",
            )
        )
    return table(("seed", "parameters", "steps", "tokens", "training", "machine", "resolved recipe"), rows)


def _machine(machine: Json) -> str:
    gpus = machine.get("gpus") or machine.get("gpu")
    if gpus:
        return ", ".join(map(str, gpus)) if isinstance(gpus, list) else str(gpus)
    cores = machine.get("cores")
    return f"{machine.get('processor', 'CPU')}, {cores} core{'s' if cores != 1 else ''}, no GPU"


def depths_table(evaluation: Json) -> str:
    """Write a table of metrics by depth, trained depths in bold."""
    rows = evaluation["depths"]
    columns = columns_of(rows)[:MAX_COLUMNS]
    note = f"Trained depths are in bold. {prose(evaluation.get('slice', ''))}"
    return (
        table(("depth", *(column.heading for column in columns)), markdown_lines(columns, rows), numbers=True)
        + f"\n\n{note}"
    )


def claims_table(evidence: Evidence, scale: str, here: str) -> str:
    """Write the claims of the paper about this arm with the measured values; empty if there is none."""
    rows = [
        (
            prose(claim["says"]),
            prose(claim["paper"]),
            prose(measurement(claim)),
            verdict(claim),
        )
        for claim in evidence.claims(scale).values()
    ]
    if not rows:
        return ""
    heading = f"Claims of {link(prose(evidence.study.title), evidence.study.page, here)} that use it:"
    return f"{heading}\n\n" + table(("claim", "paper", "measured", "verdict"), rows)


def verdict(claim: Json) -> str:
    """Format the verdict on a claim as a coloured label."""
    text = VERDICTS[claim.get("holds")]
    return f'<span class="lk-verdict lk-{text.replace(" ", "-")}">{text}</span>'


def reported_tables(evidence: Evidence) -> Iterator[str]:
    """Yield the tables of the paper that have a row for this arm."""
    for name, columns, values in evidence.reported():
        caption = prose(name.replace("_", " "))
        row = (f"paper, {caption}", *map(printed, values))
        yield table(("", *map(prose, columns)), [row], numbers=True)


def exit_bars(entry: Json) -> Iterator[str]:
    """Yield a plot for each early-exit rule of the benchmark: the loops after which sequences stopped."""
    for name, exit_result in entry.get("early_exit", {}).get("exits", {}).items():
        counts: Sequence[int] = exit_result.get("exits_by_loop") or ()
        if counts:
            yield loop_bars(counts, f"sequences stopped by {name}, by loop")
