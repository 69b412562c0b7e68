"""Read parts of source files without importing them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from loopkit.registry.source import parse


def class_text(file: Path, name: str) -> str:
    """Return the text of a class with its decorators."""
    node = parse(file).classes[name]
    first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
    return "\n".join(file.read_text(encoding="utf-8").splitlines()[first - 1 : node.end_lineno])


def class_doc(file: Path, name: str) -> str:
    """Return the docstring of a class."""
    return inspect.cleandoc(ast.get_docstring(parse(file).classes[name], clean=False) or "")


def properties(file: Path, name: str) -> dict[str, tuple[str, str]]:
    """Return docstring and path of each property of a class; the path is the last string that it returns."""
    paths = {}
    for node in parse(file).classes[name].body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "property" for d in node.decorator_list):
            strings = [leaf.value for leaf in ast.walk(node.body[-1]) if isinstance(leaf, ast.Constant)]
            path = next((text for text in reversed(strings) if isinstance(text, str)), "")
            paths[node.name] = (ast.get_docstring(node) or "", path)
    return paths


def source_path(file: Path, root: Path) -> str:
    """Return the path of a file relative to the project, or for another package relative to its parent folder."""
    if file.is_relative_to(root):
        return str(file.relative_to(root))
    parts = file.parts
    marker = max((i for i, part in enumerate(parts) if part in ("site-packages", "src")), default=len(parts) - 3)
    return "/".join(parts[marker + 1 :])
