"""What encoded data depends on beside the text: the options of a component, and the code that reads and cuts."""

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

HERE = Path(__file__).resolve().parent.parent


def options_key(spec: Spec, *, contents: bool) -> Any:
    """A component's name and options, in which a path stands for what is there and not for where that is.

    Args:
        spec: The component.
        contents: Whether the files' contents count; for a source, its fingerprint names them already.
    """
    return [spec.name, _plain(spec.options, contents)]


def locations(spec: Spec) -> list[tuple[str, ...]]:
    """The options of a component that are paths, by their keys."""
    return list(_paths(spec.options, ()))


def code_version(cls: type) -> str:
    """Digest of the code that a component runs when it reads or encodes: another one may give other tokens.

    It covers the modules beside each class that the component descends from, and this package. Comments, docstrings and
    the layout of the code do not count.
    """
    files = {file for base in cls.__mro__ for file in _modules(base)} | set(HERE.glob("*.py"))
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
    """The file of a class, and those beside it in its package; none for what Python itself brings."""
    try:
        file = Path(inspect.getfile(cls))
    except (TypeError, OSError):  # a built-in class, or one that was typed in
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
