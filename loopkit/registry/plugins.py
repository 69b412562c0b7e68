"""Components that installed packages offer through entry points, found without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from loopkit.registry.kinds import KINDS
from loopkit.registry.module_files import module_file
from loopkit.registry.schema import Provider, Schema
from loopkit.registry.source import SourceProblem, read_components


@dataclass(frozen=True)
class Offer:
    """A component of a provider, with its ``schema``, or with a ``problem`` if it cannot be read."""

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
    """Yield the components that installed packages declare; a broken one is an offer with a problem."""
    for kind in KINDS.values():
        for point in entry_points(group=kind.group):
            yield _offer(kind.name, point)


def _offer(kind: str, point: EntryPoint) -> Offer:
    distribution = point.dist
    package, version = (distribution.name, distribution.version) if distribution else ("unknown", "")
    try:
        provider = Provider(package, version, point.module)
    except AttributeError:  # its metadata is not "module:Class"
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
