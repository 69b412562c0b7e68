"""``model_card.md`` of a run: what somebody needs who is handed the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopkit.report.numbers import count
from loopkit.report.pages.page import Block, Heading, TableBlock, TextBlock, to_markdown
from loopkit.report.record import Record
from loopkit.report.tables.depth import columns_of, lines_of

SIDE = 5
"""Columns of the table by depth; the rest is in the evaluation's own file."""


def model_card(record: Record, recipe: dict[str, Any]) -> str:
    """The card, as Markdown; what a run does not say is left out.

    Args:
        record: The run.
        recipe: Its resolved recipe.
    """
    return to_markdown([Heading(record.name, 1), *_about(recipe), *_use(record), *_measured(record), *_made(record)])


def _about(recipe: dict[str, Any]) -> Iterator[Block]:
    yield TextBlock(recipe.get("description") or "A looped language model.")
    model, data, train = recipe["model"], recipe["data"], recipe["train"]
    rows = [
        ("core", _named(model["core"])),
        ("width", count(model["width"])),
        ("readout", _named(model["readout"])),
        ("loops in training", _named(train["schedule"])),
        ("supervision", _named(recipe["objective"]["supervision"])),
        ("text", _named(data["source"])),
        ("tokenizer", _named(data["tokenizer"])),
    ]
    if recipe.get("paper"):
        rows.append(("paper", str(recipe["paper"])))
    yield TableBlock(("", ""), rows)


def _use(record: Record) -> Iterator[Block]:
    yield Heading("Use")
    yield TextBlock(
        f'`loopkit.load("{record.name}")` gives model, tokenizer and recipe; `loopkit eval {record.name} --depths 1-8` '
        "measures it at any number of loops. It is a model for study: nothing was done to make its text safe or true."
    )


def _measured(record: Record) -> Iterator[Block]:
    result = record.latest()
    if result is None:
        yield TextBlock("It has not been evaluated.")
        return
    yield Heading("Measured")
    # what asks for texts alone scores no slice, and an imported model has no steps
    facts = [result.get("slice", result["split"]), result["dtype"]]
    facts += [f"after {count(result['step'])} optimizer steps"] if result.get("step") is not None else []
    yield TextBlock(f"{', '.join(facts)}; trained depths bold.")
    columns = columns_of(result["depths"])[:SIDE]
    names = [f"**{row['depth']}**" if row.get("trained") else str(row["depth"]) for row in result["depths"]]
    rows = [(name, *line) for name, line in zip(names, lines_of(columns, result["depths"]), strict=True)]
    yield TableBlock(("depth", *(column.heading for column in columns)), rows)


def _made(record: Record) -> Iterator[Block]:
    known = record.provenance
    rows = [("resolved recipe", f"`{known['recipe_hash']}`")] if "recipe_hash" in known else []
    if "parameters" in known:
        rows.append(("parameters", count(known["parameters"]["unique"])))
    if record.lines:
        last = record.lines[-1]
        rows += [("optimizer steps", count(last["step"])), ("tokens of training", count(last["tokens"]))]
    rows += [(name, str(version)) for name, version in known.get("packages", {}).items()]
    if rows:
        yield Heading("Made")
        yield TableBlock(("", ""), rows)


def _named(choice: Any) -> str:
    """A component with its plain options, in a line."""
    if not isinstance(choice, dict):
        return str(choice)
    plain = [f"{name} {value}" for name, value in choice.items() if name != "type" and _plain(value)]
    return f"{choice['type']}{' (' + ', '.join(plain) + ')' if plain else ''}"


def _plain(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)
