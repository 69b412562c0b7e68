"""``model_card.md`` of a run, for users of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopkit.report.numbers import format_count
from loopkit.report.pages.page import Block, Heading, TableBlock, TextBlock, to_markdown
from loopkit.report.record import Record, weights_of
from loopkit.report.tables.depth import columns_of, markdown_lines

MAX_COLUMNS = 5
"""Columns of the table by depth; the file of the evaluation has all of them."""


def model_card(record: Record, recipe: dict[str, Any], usage: str | None = None) -> str:
    """Format the model card as Markdown; fields that a run lacks are left out.

    Args:
        record: The run.
        recipe: Its resolved recipe.
        usage: How to load the model; None describes loopkit.
    """
    usage = _usage(record) if usage is None else usage
    blocks = [*_summary(recipe), Heading("Usage"), TextBlock(usage), *_evaluation(record), *_provenance(record)]
    return to_markdown([Heading(record.name, 1), *blocks])


def _summary(recipe: dict[str, Any]) -> Iterator[Block]:
    yield TextBlock(recipe.get("description") or "A looped language model.")
    model, data, train = recipe["model"], recipe["data"], recipe["train"]
    rows = [
        ("core", _named(model["core"])),
        ("width", format_count(model["width"])),
        ("readout", _named(model["readout"])),
        ("loops in training", _named(train["schedule"])),
        ("supervision", _named(recipe["objective"]["supervision"])),
        ("data", _named(data["source"])),
        ("tokenizer", _named(data["tokenizer"])),
    ]
    if recipe.get("paper"):
        rows.append(("paper", str(recipe["paper"])))
    yield TableBlock(("", ""), rows)


def _usage(record: Record) -> str:
    return (
        f'`loopkit.load("{record.name}")` returns model, tokenizer and recipe; '
        f"`loopkit eval {record.name} --depths 1-8` evaluates it at any number of loops. The model is for research: "
        "its output was not made safe or factual."
    )


def _evaluation(record: Record) -> Iterator[Block]:
    result = record.latest() or record.latest(weights="ema")
    if result is None:
        yield TextBlock("The model has not been evaluated.")
        return
    yield Heading("Evaluation")
    # an evaluation of generations only has no slice, and an imported model has no steps
    facts = [result.get("slice", result["split"]), result["dtype"]]
    facts += [f"after {format_count(result['step'])} optimizer steps"] if result.get("step") is not None else []
    facts += ["averaged weights"] if weights_of(result) == "ema" else []
    yield TextBlock(f"{', '.join(facts)}; trained depths in bold.")
    columns = columns_of(result["depths"])[:MAX_COLUMNS]
    heading = ("depth", *(column.heading for column in columns))
    yield TableBlock(heading, markdown_lines(columns, result["depths"]))


def _provenance(record: Record) -> Iterator[Block]:
    provenance = record.provenance
    rows = [("resolved recipe", f"`{provenance['recipe_hash']}`")] if "recipe_hash" in provenance else []
    if "parameters" in provenance:
        rows.append(("parameters", format_count(provenance["parameters"]["unique"])))
    if record.lines:
        last = record.lines[-1]
        rows += [("optimizer steps", format_count(last["step"])), ("training tokens", format_count(last["tokens"]))]
    rows += [(name, str(version)) for name, version in provenance.get("packages", {}).items()]
    if rows:
        yield Heading("Provenance")
        yield TableBlock(("", ""), rows)


def _named(choice: Any) -> str:
    """Format a component and its scalar options in one line."""
    if not isinstance(choice, dict):
        return str(choice)
    options = [f"{name} {value}" for name, value in choice.items() if name != "type" and _is_scalar(value)]
    return f"{choice['type']}{' (' + ', '.join(options) + ')' if options else ''}"


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)
