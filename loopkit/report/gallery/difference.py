"""What a recipe changes of its parent, key by key, after both are resolved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loopkit.report.markdown import literal

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


def difference(parent: Mapping[str, Any], child: Mapping[str, Any]) -> list[Change]:
    """Every key whose value differs.

    A component of another type is one change, with its options: they are not the options of the one before.

    Args:
        parent: Values of the resolved parent.
        child: Values of the resolved recipe.
    """
    first, second = ({key: value for key, value in values.items() if key not in LABELS} for values in (parent, child))
    return list(_changes(first, second, ()))


def _changes(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[Change]:
    if before == after:
        return
    nested = isinstance(before, Mapping) and isinstance(after, Mapping)
    if nested and before.get("type") == after.get("type"):
        for key in dict.fromkeys([*before, *after]):
            yield from _changes(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
        return
    yield Change(".".join(path), _written(before), _written(after))


_ABSENT = object()


def _written(value: Any) -> str:
    if value is _ABSENT:
        return ""
    if isinstance(value, Mapping) and set(value) == {"type"}:
        return str(value["type"])
    return literal(value) if not isinstance(value, Mapping) else _flow(value)


def _flow(value: Any) -> str:
    """YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return value if isinstance(value, str) and value.replace("_", "").isalnum() else literal(value)
