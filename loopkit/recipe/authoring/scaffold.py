"""A new recipe's text, written out of its parent: what may be changed, what it is now, and what it means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loopkit.recipe.authoring.describe import describe
from loopkit.recipe.read import yaml_text
from loopkit.recipe.recipe import Recipe, format_sections
from loopkit.registry.schema import Leaf, Option, Schema, SectionRef, Slot

SECTIONS = ("data", "model", "objective", "train", "evaluate")
COLUMN = 60
"""Where explanations stand, unless a value is longer."""


def scaffold(parent: Recipe, extends: str, plugins: Sequence[str] = ()) -> str:
    """Return the text of a recipe that changes nothing of its parent yet.

    Args:
        parent: Resolved.
        extends: How the new recipe names it.
        plugins: Files with components that the parent does not name itself.
    """
    lines = [
        "# What this recipe does not say, it has from the one it extends. Take the '#' off a line, and off the lines",
        "# above it that it stands under, and change its value; indentation counts from the '#'.",
        "loopkit: 2",
        *yaml_text({"extends": extends, "description": "Say what the experiment shows."}).splitlines(),
        *(yaml_text({"plugins": list(plugins)}).splitlines() if plugins else ()),
        *_commented(yaml_text({"seed": parent.seed}).splitlines()),
    ]
    sections = format_sections()
    for name in SECTIONS:
        schema = sections[f"{name.capitalize()}Config"]
        lines += ["", f"# {schema.summary}", f"#{name}:"]
        lines += _commented(_options(parent, schema, parent.values[name], (name,), "  "))
    return "\n".join(lines) + "\n"


def _commented(lines: Iterator[str] | list[str]) -> list[str]:
    return [f"#{line}" for line in lines]


def _options(
    parent: Recipe, schema: Schema, values: Mapping[str, Any], path: tuple[str, ...], indent: str
) -> Iterator[str]:
    """Yield a line for each option that has a value, with its meaning; parts are written below their name."""
    for name, option in schema.options.items():
        value, place = values.get(name), (*path, name)
        if value is None and name in schema.traits.get("exactly_one", ()):
            continue  # a second alternative would be an error
        inner = _schema(parent, option, place)
        if inner is None or not isinstance(value, Mapping):
            yield _explained(_one_line(indent, name, value), option)
            continue
        yield _explained(f"{indent}{name}:", option)
        if "type" in value:
            yield f"{indent}  type: {value['type']}".ljust(COLUMN) + f"  # {inner.summary}"
        yield from _options(parent, inner, value, place, indent + "  ")


def _schema(parent: Recipe, option: Option, place: tuple[str, ...]) -> Schema | None:
    """Return what describes the map at a place: a section of the format, or the component chosen there."""
    if isinstance(option.annotation, SectionRef):
        return format_sections()[option.annotation.name]
    if isinstance(option.annotation, Slot) and place in parent.specs:
        return parent.specs[place].schema
    return None


def _one_line(indent: str, name: str, value: Any) -> str:
    """Return a value on one line; JSON is YAML too, and has a short form of lists, maps and ends of line."""
    if isinstance(value, dict | list) or (isinstance(value, str) and "\n" in value):
        return f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}"
    return indent + yaml_text({name: value}).replace("\n  ", " ").rstrip("\n")


def _explained(line: str, option: Option) -> str:
    kind = f" ({describe(option.annotation)})" if isinstance(option.annotation, Leaf) else ""
    return f"{line.ljust(COLUMN)}  # {option.doc.replace('``', '')}{kind}"
