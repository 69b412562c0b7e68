"""What resolved recipes differ in, key by key: a recipe from its parent, or several runs from one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopkit.report.pages.markdown import literal

LABELS = ("description", "paper", "extends", "profiles", "loopkit", "plugins")
"""Keys that say what a recipe is called or how it is composed, and change no experiment."""


@dataclass(frozen=True)
class Change:
    """One key that differs.

    Args:
        key: The key, dotted.
        before: The parent's value, as a recipe writes it; empty where the parent has no such key.
        after: The recipe's value; empty where it has none.
    """

    key: str
    before: str
    after: str


@dataclass(frozen=True)
class Varied:
    """One key in which several recipes are not all equal.

    Args:
        key: The key, dotted.
        values: The value in each recipe, as it would be written; empty where one has no such key.
    """

    key: str
    values: tuple[str, ...]


def difference(parent: Mapping[str, Any], child: Mapping[str, Any]) -> list[Change]:
    """Every key whose value differs.

    A component of another type is one change, with its options: they are not the options of the one before.

    Args:
        parent: Values of the resolved parent.
        child: Values of the resolved recipe.
    """
    return [Change(found.key, *found.values) for found in variation([parent, child])]


def variation(recipes: Sequence[Mapping[str, Any]]) -> list[Varied]:
    """Every key whose value is not the same in all; a component of another type is one of them, with its options.

    Args:
        recipes: Values of the resolved recipes.
    """
    compared = [{key: value for key, value in values.items() if key not in LABELS} for values in recipes]
    return list(_variation(compared, ()))


def _variation(values: Sequence[Any], path: tuple[str, ...]) -> Iterator[Varied]:
    first = values[0]
    if all(value == first for value in values):
        return
    if all(isinstance(value, Mapping) and value.get("type") == first.get("type") for value in values):
        for key in dict.fromkeys(key for value in values for key in value):
            yield from _variation([value.get(key, _ABSENT) for value in values], (*path, key))
        return
    yield Varied(".".join(path), tuple(map(_written, values)))


_ABSENT = object()


def _written(value: Any) -> str:
    if value is _ABSENT:
        return ""
    if isinstance(value, Mapping) and set(value) == {"type"}:
        return str(value["type"])
    return literal(value) if not isinstance(value, Mapping) else flow(value)


def flow(value: Any) -> str:
    """A value as YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return value if isinstance(value, str) and value.replace("_", "").isalnum() else literal(value)
