"""``comparison.md`` and ``comparison.html``: several runs side by side, a column for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopkit.recipe.read import read_file
from loopkit.recipe.recipe import completed_values
from loopkit.report.compare import compare
from loopkit.report.difference import flow, variation
from loopkit.report.numbers import ABSENT, count, large
from loopkit.report.pages.page import Block, Heading, Plot, TableBlock, TextBlock, to_html, to_markdown
from loopkit.report.plots.compare import plot_comparison, plot_losses
from loopkit.report.record import Record, read_record
from loopkit.report.tables.compare import QUANTITIES, measured_in
from loopkit.report.tables.depth import spell_trained
from loopkit.runs import RunFolder, write_text

Json = Mapping[str, Any]

BUDGETS = {"tokens": "training tokens", "flops": "training compute"}
MOST_DEPTHS = 16
"""Of more depths than this a table has the powers of two, the trained ones' ends, and the last."""


def write_comparison(folders: Sequence[RunFolder], out: Path, split: str = "validation") -> list[Path]:
    """Write a comparison as Markdown beside its plots, and as one HTML file with them inside.

    Args:
        folders: Two or more runs.
        out: Where the files go; made if needed.
        split: The evaluated split.

    Returns:
        The files written.

    Raises:
        ValueError: If the runs cannot be compared, or a file of one is damaged.
    """
    records = [read_record(folder) for folder in folders]
    found = compare(records, split)
    recipes = [completed_values(read_file(folder.resolved, str(folder.resolved)).plain()) for folder in folders]
    blocks = [
        Heading("Runs side by side", 1),
        TextBlock(f"{', '.join(f'`{record.name}`' for record in records)}, evaluated on {split}."),
        *(TextBlock(f"**Note:** {note}.") for note in found["notes"]),
        Heading("The runs"),
        _about(records, recipes, split),
        *_losses(records, out),
        *(block for what in BUDGETS if what in found for block in _equal(found, what, out)),
        *_settings(found),
        *_recipes(records, recipes),
        *_provenance(records),
    ]
    page, one_file = out / "comparison.md", out / "comparison.html"
    write_text(page, to_markdown(blocks))
    write_text(one_file, to_html(blocks, out))
    return [page, one_file, *(out / block.path for block in blocks if isinstance(block, Plot))]


def _side_by_side(
    records: Sequence[Record], rows: Mapping[str, Sequence[str | None]], words: bool = False
) -> TableBlock:
    """A column for each run; a row that no run has anything in is left out."""
    kept = [(name, *(cell or ABSENT for cell in cells)) for name, cells in rows.items() if any(cells)]
    return TableBlock(("", *(record.name for record in records)), kept, words=words)


def _about(records: Sequence[Record], recipes: Sequence[Json], split: str) -> TableBlock:
    return _side_by_side(
        records,
        {
            "recipe": [record.provenance.get("recipe") for record in records],
            "hash of the resolved recipe": [_code(record.provenance.get("recipe_hash")) for record in records],
            "seed": [str(recipe["seed"]) for recipe in recipes],
            "parameters": [_parameters(record) for record in records],
            "optimizer steps": [_last(record, "step", count) for record in records],
            "training tokens": [_last(record, "tokens", count) for record in records],
            "training FLOPs": [_last(record, "flops", large) for record in records],
            "checkpoint evaluated last": [(record.latest(split) or {}).get("checkpoint") for record in records],
        },
        words=True,
    )


def _code(text: str | None) -> str | None:
    return text and f"`{text}`"


def _parameters(record: Record) -> str | None:
    known = record.provenance.get("parameters")
    return count(known["unique"]) if known else None


def _last(record: Record, what: str, write: Callable[[float | None], str]) -> str | None:
    value = record.lines[-1].get(what) if record.lines else None
    return None if value is None else write(value)


def _losses(records: Sequence[Record], out: Path) -> Iterator[Block]:
    if any(record.lines for record in records):
        plot = plot_losses(records, out / "training.svg")
        yield Heading("Training")
        yield Plot(plot.name, "Cross-entropy of the last loop, in nats per token, against what training had spent")


def _equal(found: Json, what: str, out: Path) -> Iterator[Block]:
    equal, name = found[what], BUDGETS[what]
    runs, unit = equal["runs"], "tokens" if what == "tokens" else "FLOPs"
    yield Heading(f"At equal {name}")
    yield TextBlock(
        f"Each run's last evaluation within {large(equal['budget'])} {unit}: the least that any of them had spent "
        "when it was evaluated last."
    )
    facts = [
        ("optimizer step", *(count(run["step"]) for run in runs)),
        (f"{unit} spent", *(large(run["spent"]) for run in runs)),
        ("trained depths", *(_trained(run) for run in runs)),
    ]
    yield TableBlock(("", *(run["run"] for run in runs)), facts)
    for quantity in measured_in(equal):
        yield Heading(QUANTITIES[quantity].title, 3)
        yield _by_depth(runs, quantity)
    if any(row.get("trained") for run in runs for row in run["depths"]):
        yield TextBlock("Trained depths are in bold.")
    plot = plot_comparison(found, out / f"by_{what}.svg", what)
    yield Plot(plot.name, f"By depth, at equal {name}; the range of trained depths is marked")


def _trained(run: Json) -> str:
    trained = run.get("trained_depths")
    if trained is None:
        return ABSENT
    return spell_trained(trained)


def _by_depth(runs: Sequence[Json], quantity: str) -> TableBlock:
    by_run = [{row["depth"]: row for row in run["depths"]} for run in runs]
    depths = _shown(runs)
    columns = []
    for rows in by_run:
        found = [rows.get(depth, {}) for depth in depths]
        cells = QUANTITIES[quantity].cells(found)
        columns.append([f"**{cell}**" if row.get("trained") else cell for cell, row in zip(cells, found, strict=True)])
    lines = [(str(depth), *cells) for depth, cells in zip(depths, zip(*columns, strict=True), strict=True)]
    return TableBlock(("depth", *(run["run"] for run in runs)), lines)


def _shown(runs: Sequence[Json]) -> list[int]:
    """All depths of a few, else those that tell the story."""
    depths = sorted({row["depth"] for run in runs for row in run["depths"]})
    if len(depths) <= MOST_DEPTHS:
        return depths
    ends = {run["trained_depths"][end] for run in runs if "trained_depths" in run for end in ("min", "max")}
    return [depth for depth in depths if depth & (depth - 1) == 0 or depth in ends or depth == depths[-1]]


def _settings(found: Json) -> Iterator[Block]:
    yield Heading("How they were evaluated")
    if not found["differences"]:
        yield TextBlock("Data, split, slice, tokenizer, protocol, windows and arithmetic are the same in all.")
        return
    yield TextBlock("Settings in which the evaluations differ; figures compare only where these do not touch them.")
    names = found["runs"]
    rows = [
        (setting.replace("_", " "), *(_setting(values[name]) for name in names))
        for setting, values in found["differences"].items()
    ]
    yield TableBlock(("", *names), rows, words=True)


def _setting(value: Any) -> str:
    if value is None:
        return ABSENT
    text = value if isinstance(value, str) else flow(value)
    return f"`{text[:12]}`" if len(text) == 64 and text.isalnum() else text  # a fingerprint


def _recipes(records: Sequence[Record], recipes: Sequence[Json]) -> Iterator[Block]:
    yield Heading("What their recipes differ in")
    rows = {f"`{key.key}`": [_code(value) or "absent" for value in key.values] for key in variation(recipes)}
    if rows:
        yield TextBlock("Every key of the resolved recipes that is not the same in all.")
        yield _side_by_side(records, rows, words=True)
    else:
        yield TextBlock("Nothing: the resolved recipes are the same.")


def _provenance(records: Sequence[Record]) -> Iterator[Block]:
    known = [record.provenance for record in records]
    machines = [provenance.get("machine", {}) for provenance in known]
    packages = [provenance.get("packages", {}) for provenance in known]
    rows: dict[str, list[str | None]] = {"trained with": [_code("; ".join(record.commands)) for record in records]}
    rows["python"] = [provenance.get("python") for provenance in known]
    for name in dict.fromkeys(name for versions in packages for name in versions):
        rows[name] = [versions.get(name) and str(versions[name]) for versions in packages]
    for name in dict.fromkeys(name for machine in machines for name in machine):
        rows[name.removesuffix("_bytes").replace("_", " ")] = [
            _machine(name, machine.get(name)) for machine in machines
        ]
    if any(known):
        yield Heading("What made them")
        yield _side_by_side(records, rows, words=True)


def _machine(name: str, value: Any) -> str | None:
    if value is None:
        return None
    return f"{large(value)}B" if name.endswith("bytes") else value if isinstance(value, str) else flow(value)
