"""``comparison.md`` and ``comparison.html``: several runs side by side, a column for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopkit.recipe.difference import experiment_differences
from loopkit.recipe.read import read_file
from loopkit.recipe.recipe import completed_values
from loopkit.report.compare import compare
from loopkit.report.numbers import ABSENT, format_amount, format_count
from loopkit.report.pages.markdown import flow, recipe_value
from loopkit.report.pages.page import Block, Heading, Plot, TableBlock, TextBlock, to_html, to_markdown
from loopkit.report.plots.compare import plot_comparison, plot_losses
from loopkit.report.record import Record, read_record
from loopkit.report.row import select_depths
from loopkit.report.tables.compare import COMPARED, measured_in
from loopkit.report.tables.depth import format_trained
from loopkit.runs import RunFolder, write_text

Json = Mapping[str, Any]

BUDGETS = {"tokens": "training tokens", "flops": "training compute"}
MAX_DEPTHS = 16
"""With more depths, a table has the powers of two, the ends of the trained ranges, and the last."""


def write_comparison(folders: Sequence[RunFolder], out: Path, split: str = "validation") -> list[Path]:
    """Write a comparison as Markdown with separate plots, and as one HTML file that contains them.

    Args:
        folders: Two or more runs.
        out: Folder of the files; created if needed.
        split: The evaluated split.

    Returns:
        Paths of the written files.

    Raises:
        ValueError: If the runs cannot be compared, or a file of one is damaged.
    """
    records = [read_record(folder) for folder in folders]
    comparison = compare(records, split)
    recipes = [completed_values(read_file(folder.resolved, str(folder.resolved)).plain()) for folder in folders]
    blocks = [
        Heading("Runs side by side", 1),
        TextBlock(f"{', '.join(f'`{record.name}`' for record in records)}, evaluated on {split}."),
        *(TextBlock(f"**Note:** {note}.") for note in comparison["notes"]),
        Heading("Runs"),
        _summary(records, recipes, split),
        *_losses(records, out),
        *(block for budget in BUDGETS if budget in comparison for block in _at_equal(comparison, budget, out)),
        *_settings(comparison),
        *_recipes(records, recipes),
        *_provenance(records),
    ]
    markdown, html = out / "comparison.md", out / "comparison.html"
    write_text(markdown, to_markdown(blocks))
    write_text(html, to_html(blocks, out))
    return [markdown, html, *(out / block.path for block in blocks if isinstance(block, Plot))]


def _side_by_side(
    records: Sequence[Record], rows: Mapping[str, Sequence[str | None]], is_text: bool = False
) -> TableBlock:
    """Build a table with a column for each run; a row without any value is left out."""
    lines = [(name, *(cell or ABSENT for cell in cells)) for name, cells in rows.items() if any(cells)]
    return TableBlock(("", *(record.name for record in records)), lines, is_text=is_text)


def _summary(records: Sequence[Record], recipes: Sequence[Json], split: str) -> TableBlock:
    return _side_by_side(
        records,
        {
            "recipe": [record.provenance.get("recipe") for record in records],
            "hash of the resolved recipe": [_code(record.provenance.get("recipe_hash")) for record in records],
            "seed": [str(recipe["seed"]) for recipe in recipes],
            "parameters": [_parameters(record) for record in records],
            "optimizer steps": [_last(record, "step", format_count) for record in records],
            "training tokens": [_last(record, "tokens", format_count) for record in records],
            "training FLOPs": [_last(record, "flops", format_amount) for record in records],
            "last evaluated checkpoint": [(record.latest(split) or {}).get("checkpoint") for record in records],
        },
        is_text=True,
    )


def _code(text: str | None) -> str | None:
    return text and f"`{text}`"


def _parameters(record: Record) -> str | None:
    parameters = record.provenance.get("parameters")
    return format_count(parameters["unique"]) if parameters else None


def _last(record: Record, field: str, format_number: Callable[[float | None], str]) -> str | None:
    value = record.lines[-1].get(field) if record.lines else None
    return None if value is None else format_number(value)


def _losses(records: Sequence[Record], out: Path) -> Iterator[Block]:
    if any(record.lines for record in records):
        plot = plot_losses(records, out / "training.svg")
        yield Heading("Training")
        yield Plot(plot.name, "Cross-entropy of the last loop, in nats per token, against training cost")


def _at_equal(comparison: Json, budget: str, out: Path) -> Iterator[Block]:
    equal, name = comparison[budget], BUDGETS[budget]
    runs, unit = equal["runs"], "tokens" if budget == "tokens" else "FLOPs"
    yield Heading(f"At equal {name}")
    yield TextBlock(
        f"Each run's last evaluation within {format_amount(equal['budget'])} {unit}, the smallest budget of any run "
        "at its last evaluation."
    )
    facts = [
        ("optimizer step", *(format_count(run["step"]) for run in runs)),
        (f"{unit} spent", *(format_amount(run["spent"]) for run in runs)),
        ("trained depths", *(_trained_depths(run) for run in runs)),
    ]
    yield TableBlock(("", *(run["run"] for run in runs)), facts)
    for metric in measured_in(equal):
        yield Heading(COMPARED[metric].title, 3)
        yield _by_depth(runs, metric)
    if any(row.get("trained") for run in runs for row in run["depths"]):
        yield TextBlock("Trained depths are in bold.")
    plot = plot_comparison(comparison, out / f"by_{budget}.svg", budget)
    yield Plot(plot.name, f"By depth, at equal {name}; trained depths are marked")


def _trained_depths(run: Json) -> str:
    trained = run.get("trained_depths")
    if trained is None:
        return ABSENT
    return format_trained(trained)


def _by_depth(runs: Sequence[Json], metric: str) -> TableBlock:
    by_run = [{row["depth"]: row for row in run["depths"]} for run in runs]
    depths = _select_depths(runs)
    columns = []
    for rows in by_run:
        selected = [rows.get(depth, {}) for depth in depths]
        cells = COMPARED[metric].cells(selected)
        columns.append(
            [f"**{cell}**" if row.get("trained") else cell for cell, row in zip(cells, selected, strict=True)]
        )
    lines = [(str(depth), *cells) for depth, cells in zip(depths, zip(*columns, strict=True), strict=True)]
    return TableBlock(("depth", *(run["run"] for run in runs)), lines)


def _select_depths(runs: Sequence[Json]) -> list[int]:
    depths = sorted({row["depth"] for run in runs for row in run["depths"]})
    ends = [run["trained_depths"][end] for run in runs if "trained_depths" in run for end in ("min", "max")]
    return select_depths(depths, MAX_DEPTHS, always=ends)


def _settings(comparison: Json) -> Iterator[Block]:
    yield Heading("Evaluation settings")
    if not comparison["differences"]:
        yield TextBlock("Data, split, slice, tokenizer, protocol, windows and precision are equal in all runs.")
        return
    yield TextBlock("The evaluations differ in these settings; values that depend on them are not comparable.")
    names = comparison["runs"]
    rows = [
        (setting.replace("_", " "), *(_setting(values[name]) for name in names))
        for setting, values in comparison["differences"].items()
    ]
    yield TableBlock(("", *names), rows, is_text=True)


def _setting(value: Any) -> str:
    if value is None:
        return ABSENT
    text = value if isinstance(value, str) else flow(value)
    return f"`{text[:12]}`" if len(text) == 64 and text.isalnum() else text  # a fingerprint


def _recipes(records: Sequence[Record], recipes: Sequence[Json]) -> Iterator[Block]:
    yield Heading("Recipe differences")
    rows = {
        f"`{change.key}`": [_code(recipe_value(value)) or "absent" for value in change.values]
        for change in experiment_differences(*recipes)
    }
    if rows:
        yield TextBlock("Keys of the resolved recipes whose values differ.")
        yield _side_by_side(records, rows, is_text=True)
    else:
        yield TextBlock("None: the resolved recipes are equal.")


def _provenance(records: Sequence[Record]) -> Iterator[Block]:
    provenances = [record.provenance for record in records]
    machines = [provenance.get("machine", {}) for provenance in provenances]
    packages = [provenance.get("packages", {}) for provenance in provenances]
    rows: dict[str, list[str | None]] = {"trained with": [_code("; ".join(record.commands)) for record in records]}
    rows["python"] = [provenance.get("python") for provenance in provenances]
    for name in dict.fromkeys(name for versions in packages for name in versions):
        rows[name] = [versions.get(name) and str(versions[name]) for versions in packages]
    for name in dict.fromkeys(name for machine in machines for name in machine):
        rows[name.removesuffix("_bytes").replace("_", " ")] = [
            _machine_value(name, machine.get(name)) for machine in machines
        ]
    if any(provenances):
        yield Heading("Provenance")
        yield _side_by_side(records, rows, is_text=True)


def _machine_value(name: str, value: Any) -> str | None:
    if value is None:
        return None
    return f"{format_amount(value)}B" if name.endswith("bytes") else value if isinstance(value, str) else flow(value)
