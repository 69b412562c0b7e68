"""The keys in which resolved recipes differ: for resuming, for exports, and for pages that compare recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from loopkit.recipe.identity import LABELS
from loopkit.recipe.node import Path


class _Absent(Enum):
    ABSENT = "(absent)"

    def __repr__(self) -> str:
        return str(self.value)


ABSENT: Final = _Absent.ABSENT
"""The value of a key that a recipe does not have."""


@dataclass(frozen=True)
class Difference:
    """One key whose value is not the same in all recipes.

    Args:
        path: The key. A component of another type is one difference: its options belong to its type.
        values: Its value in each recipe, ``ABSENT`` where a recipe does not have the key.
    """

    path: Path
    values: tuple[Any, ...]

    @property
    def key(self) -> str:
        """The dotted key."""
        return ".".join(self.path)

    def format_values(self) -> tuple[str, ...]:
        """Return each value as Python writes it; of components of several types only the type."""
        if all(isinstance(value, Mapping) for value in self.values):
            return tuple(repr(value.get("type", ABSENT)) for value in self.values)
        return tuple(map(repr, self.values))


def differences(*recipes: Mapping[str, Any]) -> list[Difference]:
    """Return every key whose value differs, in the order in which the recipes name them."""
    return list(_differences(recipes, ()))


def experiment_differences(*recipes: Mapping[str, Any]) -> list[Difference]:
    """Return the differences between experiments, without those of descriptions, parents and plugin paths."""
    return [change for change in differences(*recipes) if change.path[0] not in (*LABELS, "plugins")]


def _differences(values: Sequence[Any], path: Path) -> Iterator[Difference]:
    first = values[0]
    if all(value == first for value in values):
        return
    if all(isinstance(value, Mapping) and value.get("type") == first.get("type") for value in values):
        for key in dict.fromkeys(key for value in values for key in value):
            yield from _differences([value.get(key, ABSENT) for value in values], (*path, key))
    else:
        yield Difference(path, tuple(values))
