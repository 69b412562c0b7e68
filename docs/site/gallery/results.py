"""Results of one recipe as its page shows them: runs, figures by depth, claims, the paper's figures beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.site.gallery.evidence import Evidence
from docs.site.gallery.small_plot import loop_bars
from loopkit.report.pages.markdown import link, printed, prose, table
from loopkit.report.tables.depth import columns_of, lines_of
from loopkit.report.tables.study import VERDICTS, measurement

Json = Mapping[str, Any]
WIDEST = 9
"""Columns of a table by depth; what a page has no room for stands in the results file."""


def runs_table(seeds: Mapping[str, Json]) -> str:
    """One row for each run: seed, cost, machine."""
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
    """Figures by depth; trained depths in bold."""
    rows = evaluation["depths"]
    columns = columns_of(rows)[:WIDEST]
    lines = [
        (f"**{row['depth']}**" if row.get("trained") else str(row["depth"]), *written)
        for row, written in zip(rows, lines_of(columns, rows), strict=True)
    ]
    note = f"Trained depths are in bold. {prose(evaluation.get('slice', ''))}"
    return table(("depth", *(column.heading for column in columns)), lines, numbers=True) + f"\n\n{note}"


def claims_table(evidence: Evidence, scale: str, here: str) -> str:
    """The paper's statements about this arm with what was measured; empty where there is none."""
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
    heading = f"Claims of {link(prose(evidence.study.title), evidence.study.page, here)} that rest on it:"
    return f"{heading}\n\n" + table(("claim", "paper", "measured", "verdict"), rows)


def verdict(claim: Json) -> str:
    """The verdict on a claim, in a word that its colour repeats."""
    said = VERDICTS[claim.get("holds")]
    return f'<span class="lk-verdict lk-{said.replace(" ", "-")}">{said}</span>'


def reported_tables(evidence: Evidence) -> Iterator[str]:
    """What the paper prints about this arm, under the name of its table."""
    for name, columns, values in evidence.reported():
        caption = prose(name.replace("_", " "))
        row = (f"paper, {caption}", *map(printed, values))
        yield table(("", *map(prose, columns)), [row], numbers=True)


def exit_bars(entry: Json) -> Iterator[str]:
    """How the early-exit rules of the benchmark stopped, a plot for each."""
    for name, found in entry.get("early_exit", {}).get("exits", {}).items():
        counts: Sequence[int] = found.get("exits_by_loop") or ()
        if counts:
            yield loop_bars(counts, f"sequences stopped by {name}, by loop")
