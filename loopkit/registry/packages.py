"""Packages that a component needs and loopkit does not install: located without importing anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec

from loopkit.errors import UserError
from loopkit.registry.schema import Schema


class MissingPackage(UserError):
    """A component needs a package that is not installed."""


def missing_packages(schema: Schema) -> dict[str, str]:
    """Return the packages of a component that this environment lacks, each with what installs it."""
    packages: Mapping[str, str] = schema.traits.get("packages", {})
    return {name: requirement for name, requirement in packages.items() if not is_installed(name)}


def what_is_missing(schema: Schema) -> str | None:
    """Describe what is missing and the command that installs it; None if nothing is missing."""
    missing = missing_packages(schema)
    if not missing:
        return None
    packages = f"the package {next(iter(missing))}" if len(missing) == 1 else f"the packages {', '.join(missing)}"
    are = "is" if len(missing) == 1 else "are"
    return f"{schema.kind} '{schema.name}' needs {packages}, which {are} not installed: {remedy(missing)}"


def remedy(missing: Mapping[str, str]) -> str:
    """Return the command that installs packages."""
    return "pip install " + " ".join(f"'{requirement}'" for requirement in dict.fromkeys(missing.values()))


def is_installed(module: str) -> bool:
    """Check whether a top-level module can be imported; it is not imported to find out.

    A folder of that name without code, as a tracker leaves it where it ran, is none.
    """
    if module in sys.modules:
        return True
    spec = find_spec(module)
    return spec is not None and spec.origin is not None
