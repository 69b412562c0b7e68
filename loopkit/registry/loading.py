"""Importing a component's class, at the moment it is built and not before."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from loopkit.errors import UserError, file_errors

if TYPE_CHECKING:
    from loopkit.registry.schema import Schema

IMPORTING = "while importing"
"""Start of the note on an exception that is raised while a component's module is imported."""
LOCAL = "loopkit_local_"
"""Prefix of the module name of a local plugin file."""


def load_class(schema: Schema) -> type:
    """Import the module of a component and return its class.

    Raises:
        Exception: Whatever the module raises when imported, with a note that names the component.
        UserError: If the class did not register itself under the name its text promised, or its file cannot be read.
    """
    try:
        module = importlib.import_module(schema.provider.module) if schema.provider.module else import_file(schema.file)
    except BaseException as error:
        error.add_note(f"{IMPORTING} {schema.kind} '{schema.name}' from {schema.file}:{_line(error, schema)}")
        raise
    cls: type | None = getattr(module, schema.qualname, None)
    registration = getattr(cls, "registration", None)
    if registration is None or (registration.kind, registration.name) != (schema.kind, schema.name):
        raise UserError(
            f"{schema.file}:{schema.line}: {schema.qualname} did not register as {schema.kind} {schema.name!r}; "
            "no other class or decorator may replace it when the module is imported"
        )
    assert cls is not None
    return cls


def _line(error: BaseException, schema: Schema) -> int:
    """Return the line of the component's file that raised; that of its class where the fault lies before it ran."""
    line, trace = schema.line, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == schema.file.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def import_file(file: Path) -> ModuleType:
    """Import a local plugin file, once per content and path."""
    with file_errors(file, "read"):
        content = file.read_bytes()
    digest = hashlib.sha256(str(file.resolve()).encode() + content).hexdigest()[:12]
    name = f"{LOCAL}{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
