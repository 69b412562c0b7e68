"""Cache keys of encoded data: the options of components, and the code that reads and encodes."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from loopkit.components.source.files import fingerprint_files
from loopkit.registry import Spec

PACKAGE = Path(__file__).resolve().parent


def options_key(spec: Spec, *, contents: bool) -> Any:
    """Return a component's name and options, with paths replaced by digests of their contents.

    Args:
        spec: The component.
        contents: Whether to hash the contents of files; not needed for a source, whose fingerprint covers them.
    """
    return [spec.name, _plain(spec.options, contents)]


def locations(spec: Spec) -> list[tuple[str, ...]]:
    """Return the keys of a component's options that are paths."""
    return list(_paths(spec.options, ()))


def code_version(cls: type) -> str:
    """Compute a digest of the code that may change a component's tokens.

    It covers the package of each class in the component's hierarchy, and this package. Comments, docstrings and
    formatting do not count.
    """
    files = {file for base in cls.__mro__ for file in _modules(base)} | set(PACKAGE.glob("*.py"))
    digest = hashlib.sha256()
    for file in sorted(files):
        status = file.stat()
        digest.update(_code(file, status.st_mtime_ns, status.st_size).encode())
    return digest.hexdigest()


def _plain(value: Any, contents: bool) -> Any:
    if isinstance(value, Path):
        files = [value] if value.is_file() else sorted(file for file in value.rglob("*") if file.is_file())
        return fingerprint_files(files) if contents else "path"
    if isinstance(value, Spec):
        return options_key(value, contents=contents)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, contents) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, contents) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _paths(value: Any, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Path):
        yield at
    elif isinstance(value, Spec):
        yield from _paths(value.options, at)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _paths(item, (*at, str(key)))


def _modules(cls: type) -> Iterator[Path]:
    """Yield the modules of the package of a class; none for a class of the standard library."""
    try:
        file = Path(inspect.getfile(cls))
    except (TypeError, OSError):  # a built-in class, or one without a file
        return
    module = inspect.getmodule(cls)
    if cls.__module__.partition(".")[0] in ("abc", "typing", "builtins"):
        return
    in_package = module is not None and module.__package__
    yield from file.parent.glob("*.py") if in_package else [file]


@cache
def _code(file: Path, modified: int, size: int) -> str:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""  # a docstring
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()
