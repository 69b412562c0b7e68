"""Parts of source files as their authors wrote them, found without importing anything."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from loopkit.registry.source import parse


def class_text(file: Path, name: str) -> str:
    """The text of a class, decorators included."""
    node = parse(file).classes[name]
    first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
    return "\n".join(file.read_text(encoding="utf-8").splitlines()[first - 1 : node.end_lineno])


def class_doc(file: Path, name: str) -> str:
    """The docstring of a class."""
    return inspect.cleandoc(ast.get_docstring(parse(file).classes[name], clean=False) or "")


def properties(file: Path, name: str) -> dict[str, tuple[str, str]]:
    """Properties of a class that return a literal place: name to docstring and the last string in the return."""
    found = {}
    for node in parse(file).classes[name].body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "property" for d in node.decorator_list):
            strings = [leaf.value for leaf in ast.walk(node.body[-1]) if isinstance(leaf, ast.Constant)]
            place = next((text for text in reversed(strings) if isinstance(text, str)), "")
            found[node.name] = (ast.get_docstring(node) or "", place)
    return found


def path_of(file: Path, root: Path) -> str:
    """A file's path from the project's root; of another package, from its folder of packages."""
    if file.is_relative_to(root):
        return str(file.relative_to(root))
    parts = file.parts
    marker = max((i for i, part in enumerate(parts) if part in ("site-packages", "src")), default=len(parts) - 3)
    return "/".join(parts[marker + 1 :])
