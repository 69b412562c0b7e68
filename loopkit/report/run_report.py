"""``report.md`` of a run: what it is, how it trained, what it measures, and what made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loopkit.report.depth_plot import plot_depths
from loopkit.report.depth_table import columns_of, facts
from loopkit.report.numbers import count, figure, large
from loopkit.report.record import Record, read_record
from loopkit.report.training_plot import plot_training
from loopkit.runs import RunFolder, write_text


def write_report(folder: RunFolder) -> list[str]:
    """Write ``report.md`` and its plots into a run's folder, in place of older ones.

    Args:
        folder: The run.

    Returns:
        The files written, relative to the folder.

    Raises:
        ValueError: If a file of the run is damaged.
    """
    record = read_record(folder)
    parts = [f"# {record.name}", _about(record)]
    written = [folder.report.name]
    if record.lines:
        plot = plot_training(record.lines, folder.path / "plots" / "training.svg", record.name)
        written.append(f"plots/{plot.name}")
        parts += ["## Training", _training(record), f"![Training curves](plots/{plot.name})"]
    for split in sorted({result["split"] for result in record.evaluations}):
        result = record.latest(split)
        assert result is not None
        plot = plot_depths(result, folder.path / "plots" / f"depths-{split}.svg")
        written.append(f"plots/{plot.name}")
        parts += [f"## Evaluation on {split}", _facts(result), _depths(result), f"![By depth](plots/{plot.name})"]
    if record.provenance:
        parts += ["## What made it", _provenance(record.provenance)]
    write_text(folder.report, "\n\n".join(parts) + "\n")
    return written


def _about(record: Record) -> str:
    known = record.provenance
    lines = {
        "recipe": known.get("recipe"),
        "hash of the resolved recipe": f"`{known['recipe_hash']}`" if "recipe_hash" in known else None,
        "commands": "; ".join(f"`{' '.join(session['command'])}`" for session in known.get("sessions", ())) or None,
        "state": known["sessions"][-1].get("status", "running") if known.get("sessions") else None,
    }
    return _table(("", ""), [(term, text) for term, text in lines.items() if text is not None])


def _training(record: Record) -> str:
    last = record.lines[-1]
    seconds = sum(line["step_s"] for line in record.lines)
    rows = [
        ("optimizer steps", count(last["step"])),
        ("tokens", count(last["tokens"])),
        ("loss, last step", figure(last["loss"])),
        ("time in logged steps", f"{seconds / 60:,.1f} min"),
        ("tokens per second, last step", large(last["tokens_per_s"])),
        ("peak memory", f"{large(last['peak_memory_bytes'])}B"),
    ]
    if last.get("mfu") is not None:
        rows.append(("model FLOPs utilisation, last step", f"{100 * last['mfu']:.1f} %"))
    return _table(("", ""), rows)


def _facts(result: Mapping[str, Any]) -> str:
    return _table(("", ""), [(term, text) for term, text in facts(result).items() if text is not None])


def _depths(result: Mapping[str, Any]) -> str:
    columns = columns_of(result["depths"])
    cells = [column.cells(result["depths"]) for column in columns]
    rows = [
        (f"**{row['depth']}**" if row.get("trained") else str(row["depth"]), *written)
        for row, written in zip(result["depths"], zip(*cells, strict=True), strict=True)
    ]
    bold = "\n\nTrained depths are in bold." if any(row.get("trained") for row in result["depths"]) else ""
    return _table(("depth", *(column.heading for column in columns)), rows) + bold


def _provenance(known: Mapping[str, Any]) -> str:
    machine = known.get("machine", {})
    rows = [(name, str(version)) for name, version in known.get("packages", {}).items()]
    rows += [(name.replace("_", " "), str(value)) for name, value in machine.items()]
    rows += [(name, origin) for name, origin in known.get("components", {}).items()]
    return _table(("", ""), rows)


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; the first column is text, the others are numbers where there are more than two."""
    align = ["---", "---"] if len(heading) == 2 else ["---", *["---:"] * (len(heading) - 1)]
    lines = [heading, tuple(align), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
