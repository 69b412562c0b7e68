"""Source files and folders of modules, located without importing them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path


def module_file(module: str) -> Path | None:
    """Return the source file of a module; neither it nor its package is imported (``find_spec`` imports parents)."""
    return next((file for place in _candidates(module) for file in _source_files(place) if file.is_file()), None)


def module_folder(module: str) -> Path | None:
    """Return the folder of a package, with or without ``__init__.py``, or the folder that contains a module."""
    file = module_file(module)
    if file is not None:
        return file.parent
    return next((place for place in _candidates(module) if place.is_dir()), None)


def _source_files(place: Path) -> tuple[Path, Path]:
    return place.with_suffix(".py"), place / "__init__.py"


def _candidates(module: str) -> Iterator[Path]:
    """Yield the possible places of a module: below each folder of ``sys.path``, and in editable installs."""
    top, *submodules = module.split(".")
    for entry in sys.path:
        yield Path(entry).joinpath(top, *submodules)
    try:
        spec = importlib.util.find_spec(top)  # a top-level name: nothing is imported
    except (ImportError, ValueError, AttributeError):
        return
    if spec is not None and spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            yield Path(folder).joinpath(*submodules)
    elif spec is not None and spec.origin and not submodules:
        yield Path(spec.origin).with_suffix("")
