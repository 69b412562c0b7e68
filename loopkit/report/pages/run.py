"""``report.md`` and ``report.html`` of a run: recipe, training, evaluations, provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from loopkit.report.numbers import format_amount, format_count, format_value
from loopkit.report.pages.model_card import model_card
from loopkit.report.pages.page import Block, Heading, Plot, TableBlock, TextBlock, to_html, to_markdown
from loopkit.report.plots.depth import plot_depths
from loopkit.report.plots.training import plot_training
from loopkit.report.record import Record, read_record, weights_of
from loopkit.report.tables.averaged import averaged_lines, describe_pair
from loopkit.report.tables.depth import columns_of, facts, markdown_lines
from loopkit.runs import RunFolder, write_text


def write_report(folder: RunFolder) -> list[str]:
    """Write ``report.md``, its plots, ``report.html`` and a model card; older ones are replaced.

    Args:
        folder: The run.

    Returns:
        Paths of the written files, relative to the folder.

    Raises:
        ValueError: If a file of the run is damaged.
    """
    record = read_record(folder)
    blocks: list[Block] = [Heading(record.name, 1), _summary(record)]
    if record.lines:
        plot = plot_training(record.lines, folder.path / "plots" / "training.svg", record.name)
        blocks += [Heading("Training"), _training(record), Plot(f"plots/{plot.name}", "Training curves")]
    for split in sorted({result["split"] for result in record.evaluations}):
        result = record.latest(split) or record.latest(split, "ema")
        assert result is not None
        plot = plot_depths(result, folder.path / "plots" / f"depths-{split}.svg")
        averaged = "" if weights_of(result) == "trained" else " with averaged weights"
        blocks += [Heading(f"Evaluation on {split}{averaged}"), _facts(result), *_depths(result)]
        blocks.append(Plot(f"plots/{plot.name}", f"By depth, on {split}"))
        if (pair := record.averaged(split)) is not None:
            blocks += [Heading(f"Averaged weights on {split}"), TextBlock(f"{describe_pair(*pair)}."), _averaged(*pair)]
    if record.provenance:
        blocks += [Heading("Provenance"), _provenance(record.provenance)]
    write_text(folder.report, to_markdown(blocks))
    write_text(folder.report_html, to_html(blocks, folder.path))
    write_text(folder.model_card, model_card(record, yaml.safe_load(folder.resolved.read_text(encoding="utf-8"))))
    plots = [block.path for block in blocks if isinstance(block, Plot)]
    return [folder.report.name, *plots, folder.report_html.name, folder.model_card.name]


def _summary(record: Record) -> TableBlock:
    provenance = record.provenance
    lines = {
        "recipe": provenance.get("recipe"),
        "hash of the resolved recipe": f"`{provenance['recipe_hash']}`" if "recipe_hash" in provenance else None,
        "started from": _format_start(provenance),
        "commands": "; ".join(f"`{command}`" for command in record.commands) or None,
        "state": provenance["sessions"][-1].get("status", "running") if provenance.get("sessions") else None,
    }
    return TableBlock(("", ""), [(term, text) for term, text in lines.items() if text is not None])


def _format_start(provenance: Mapping[str, Any]) -> str | None:
    """Name the weights that the run started from, unless these are initial weights."""
    start = provenance.get("start")
    return start and f"`{start['file']}` ({start['weights']} weights)"


def _training(record: Record) -> TableBlock:
    last = record.lines[-1]
    seconds = sum(line["step_s"] for line in record.lines)
    rows = [
        ("optimizer steps", format_count(last["step"])),
        ("tokens", format_count(last["tokens"])),
        ("loss, last step", format_value(last["loss"])),
        ("time of logged steps", f"{seconds / 60:,.1f} min"),
        ("tokens per second, last step", format_amount(last["tokens_per_s"])),
        ("peak memory", f"{format_amount(last['peak_memory_bytes'])}B"),
    ]
    if last.get("mfu") is not None:
        rows.append(("model FLOPs utilization, last step", f"{100 * last['mfu']:.1f} %"))
    return TableBlock(("", ""), rows)


def _facts(result: Mapping[str, Any]) -> TableBlock:
    return TableBlock(("", ""), [(term, text) for term, text in facts(result).items() if text is not None])


def _depths(result: Mapping[str, Any]) -> list[Block]:
    columns = columns_of(result["depths"])
    table = TableBlock(("depth", *(column.heading for column in columns)), markdown_lines(columns, result["depths"]))
    has_trained = any(row.get("trained") for row in result["depths"])
    return [table, TextBlock("Trained depths are in bold.")] if has_trained else [table]


def _averaged(trained: Mapping[str, Any], average: Mapping[str, Any]) -> TableBlock:
    headings, lines = averaged_lines(trained, average)
    return TableBlock(headings, lines)


def _provenance(provenance: Mapping[str, Any]) -> TableBlock:
    machine = provenance.get("machine", {})
    rows = [(name, str(version)) for name, version in provenance.get("packages", {}).items()]
    rows += [(name.replace("_", " "), str(value)) for name, value in machine.items()]
    rows += [(name, origin) for name, origin in provenance.get("components", {}).items()]
    return TableBlock(("", ""), rows)
