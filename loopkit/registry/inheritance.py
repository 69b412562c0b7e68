"""The base classes of a class, found in source text: in its own file, or in the file that its import names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loopkit.registry.module_files import module_file

OPAQUE = frozenset(sys.stdlib_module_names) | {"torch"}
"""Packages whose classes are not components: their constructors hold no options."""


@dataclass(frozen=True)
class ImportedName:
    """The target of an imported name.

    Args:
        dotted: Module, or module and name in it, as written.
        folder: Folder that a relative import starts from; ``None``: the path of modules.
    """

    dotted: str
    folder: Path | None = None

    def below(self, *names: str) -> ImportedName:
        """Return the imported name of a member."""
        return ImportedName(".".join((self.dotted, *names)), self.folder)

    def split(self) -> tuple[ImportedName, str]:
        """Return everything before the last dot, and what follows it."""
        module, _, name = self.dotted.rpartition(".")
        return ImportedName(module, self.folder), name

    def file(self) -> Path | None:
        """Return the source file if it is an existing module; nothing is imported."""
        if self.folder is None:
            return None if self.dotted.split(".")[0] in OPAQUE | {""} else module_file(self.dotted)
        place = self.folder.joinpath(*filter(None, self.dotted.split(".")))
        return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def imported_names(tree: ast.Module, file: Path) -> dict[str, ImportedName]:
    """Return the targets of the top-level imports of a file, by name."""
    return {name: target for node in tree.body for name, target in _bound(node, file)}


def dotted_name(node: ast.expr) -> list[str]:
    """Return the parts of ``package.module.Class`` or ``Class[...]``; empty where it is something else."""
    match node:
        case ast.Subscript(value=value):
            return dotted_name(value)
        case ast.Attribute(value=value, attr=name):
            above = dotted_name(value)
            return [*above, name] if above else []
        case ast.Name(id=name):
            return [name]
    return []


def _bound(node: ast.stmt, file: Path) -> Iterator[tuple[str, ImportedName]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.split(".")[0]
            yield (alias.asname, ImportedName(alias.name)) if alias.asname else (first, ImportedName(first))
    elif isinstance(node, ast.ImportFrom):
        folder = file.resolve().parents[node.level - 1] if node.level else None
        module = ImportedName(node.module or "", folder)
        for alias in node.names:
            yield alias.asname or alias.name, module.below(alias.name)
