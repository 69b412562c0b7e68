"""A recipe as written: values with their origins, and problems with their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from loopkit.errors import UserError
from loopkit.plural import plural

FORMAT = 2
"""Version of the recipe format that this loopkit writes."""

Path = tuple[str, ...]
"""Keys from the root of a recipe to a value."""


@dataclass(frozen=True)
class Origin:
    """Where a value was written.

    Args:
        layer: What wrote it: a file, a profile of a file, one ``--set``, or a default.
        file: As the user named it; empty for ``--set`` and Python.
        line: Counted from one; zero if unknown.
        text: The source line.
        folder: What relative paths in the value are relative to.
        column: Of the key that holds the value, or of the value itself in a list; counted from zero.
        format: Version of the recipe format that the value is written in.
    """

    layer: str
    file: str = ""
    line: int = 0
    text: str = ""
    folder: FilePath = FilePath()
    column: int = 0
    format: int = FORMAT

    def __str__(self) -> str:
        if not self.file:
            return self.layer
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Node:
    """One value: a scalar, a list of nodes or a map from keys to nodes."""

    value: Any
    origin: Origin

    def plain(self) -> Any:
        """Return the value without origins."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def from_plain(value: Any, origin: Origin) -> Node:
    """Wrap plain Python data, every part with the same origin."""
    if isinstance(value, dict):
        return Node({str(key): from_plain(item, origin) for key, item in value.items()}, origin)
    if isinstance(value, list | tuple):
        return Node([from_plain(item, origin) for item in value], origin)
    return Node(value, origin)


def nested(node: Node, path: Iterable[str]) -> Node:
    """Return the layer that contains a value at a path."""
    for key in reversed(list(path)):
        node = Node({key: node}, node.origin)
    return node


def value_at(values: Any, path: Iterable[str]) -> Any:
    """Return the value of plain data at a path; None if there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a recipe.

    Args:
        origin: Where to look.
        path: Which key.
        message: What is wrong.
        hint: What to do.
        depends: Keys whose values this problem follows from; it is dropped where one of them is in doubt already.
    """

    origin: Origin
    path: Path
    message: str
    hint: str = ""
    depends: tuple[Path, ...] = ()

    def render(self) -> str:
        """Return the problem as the terminal shows it: place and message, source line, hint."""
        key = f"{'.'.join(self.path)}: " if self.path else ""
        lines = [f"{self.origin}: {key}{self.message}"]
        if self.origin.line and self.origin.text.strip():
            lines.append(f"{self.origin.line:5} | {self.origin.text[:200]}")
        if self.hint:
            lines.append(f"   hint: {self.hint}")
        return "\n".join(lines)


SHOWN = 100
"""Problems that a message spells out."""


class RecipeError(UserError):
    """A recipe that cannot be used, with every problem found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        unique = {(str(p.origin), p.path, p.message): p for p in problems}
        self.problems = sorted(
            unique.values(), key=lambda p: (p.origin.file == "", p.origin.file, p.origin.line, p.path)
        )
        lines = [problem.render() for problem in self.problems[:SHOWN]]
        if (more := len(self.problems) - SHOWN) > 0:
            lines.append(f"... and {plural(more, 'more problem')}")
        super().__init__("\n".join(lines))
