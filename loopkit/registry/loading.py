"""Importing a component's class, at the moment it is built and not before."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopkit.registry.schema import Schema


def load_class(schema: Schema) -> type:
    """Import the module of a component and return its class.

    Raises:
        Exception: Whatever the module raises when imported, with a note that says which component asked for it.
        TypeError: If the class did not register itself under the name its text promised.
    """
    try:
        module = importlib.import_module(schema.provider.module) if schema.provider.module else import_file(schema.file)
    except BaseException as error:
        error.add_note(f"while importing {schema.kind} '{schema.name}' from {schema.file}:{schema.line}")
        raise
    cls: type = getattr(module, schema.qualname)
    registration = getattr(cls, "registration", None)
    if registration is None or (registration.kind, registration.name) != (schema.kind, schema.name):
        raise TypeError(
            f"{schema.file}:{schema.line}: {schema.qualname} did not register as {schema.kind} {schema.name!r}"
        )
    return cls


def import_file(file: Path) -> ModuleType:
    """Import a local plugin file, once per content and path."""
    digest = hashlib.sha256(str(file.resolve()).encode() + file.read_bytes()).hexdigest()[:12]
    name = f"loopkit_local_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
