"""Components that installed packages offer through entry points, found without importing them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from loopkit.registry.kinds import KINDS
from loopkit.registry.schema import Provider, Schema
from loopkit.registry.source import SourceProblem, read_components


@dataclass(frozen=True)
class Offer:
    """A component that somebody brings: readable where ``schema`` is there, else ``problem`` says why not."""

    kind: str
    name: str
    provider: Provider
    file: Path | None
    schema: Schema | None = None
    problem: str = ""

    @property
    def place(self) -> str:
        """Its file, and the line of its class where it can be read."""
        return f"{self.file}:{self.schema.line}" if self.schema else str(self.file or "no file")

    @property
    def builtin(self) -> bool:
        """Whether loopkit itself brings it."""
        return self.provider.package == "loopkit"


def installed_offers() -> Iterator[Offer]:
    """What the entry points of installed packages promise; a broken one is an offer with a problem, never an
    exception."""
    for kind in KINDS.values():
        for point in entry_points(group=kind.group):
            yield _offer(kind.name, point)


def _offer(kind: str, point: EntryPoint) -> Offer:
    distribution = point.dist
    package, version = (distribution.name, distribution.version) if distribution else ("unknown", "")
    try:
        provider = Provider(package, version, point.module)
    except AttributeError:  # what the metadata says of it is no "module:Class"
        why = f"its entry point {point.name} = {point.value} is not written module:Class"
        return Offer(kind, point.name, Provider(package, version, ""), None, problem=why)
    file = module_file(point.module)
    if file is None:
        return Offer(kind, point.name, provider, None, problem=f"module {point.module} has no source file on the path")
    try:
        schemas = list(read_components(file, provider))
    except SourceProblem as error:
        return Offer(kind, point.name, provider, file, problem=str(error))
    for schema in schemas:
        if (schema.kind, schema.name) == (kind, point.name):
            return Offer(kind, point.name, provider, file, schema)
    return Offer(kind, point.name, provider, file, problem=f"{file} registers no {kind} called {point.name!r}")


def module_file(module: str) -> Path | None:
    """The source file of a module, without importing it or its package (``find_spec`` imports parents)."""
    return next((file for place in _places(module) for file in _files(place) if file.is_file()), None)


def module_folder(module: str) -> Path | None:
    """The folder of a package, which may do without ``__init__.py``; of a module, the folder it lies in."""
    file = module_file(module)
    if file is not None:
        return file.parent
    return next((place for place in _places(module) if place.is_dir()), None)


def _files(place: Path) -> tuple[Path, Path]:
    return place.with_suffix(".py"), place / "__init__.py"


def _places(module: str) -> Iterator[Path]:
    """Where a module may lie: below every folder of the path, and where an editable install says its package is."""
    top, *rest = module.split(".")
    for entry in sys.path:
        yield Path(entry).joinpath(top, *rest)
    try:
        spec = importlib.util.find_spec(top)  # of a top-level name this imports nothing
    except (ImportError, ValueError, AttributeError):
        return
    if spec is not None and spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            yield Path(folder).joinpath(*rest)
    elif spec is not None and spec.origin and not rest:
        yield Path(spec.origin).with_suffix("")
