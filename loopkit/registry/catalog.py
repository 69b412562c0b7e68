"""The components that a recipe can name: built-ins, installed plugins, local files."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from loopkit.errors import UserError
from loopkit.registry.kinds import KINDS
from loopkit.registry.plugins import Offer, installed_offers
from loopkit.registry.schema import Provider, Schema
from loopkit.registry.source import read_components

COMPONENTS = Path(__file__).resolve().parent.parent / "components"


class ComponentError(UserError):
    """A component that a recipe or a command names cannot be used; ``hint`` explains what to do."""

    hint: str


class UnknownComponent(ComponentError):
    """No component of this kind has this name."""

    def __init__(self, kind: str, name: object, names: Iterable[str], elsewhere: Iterable[str] = ()) -> None:
        names = sorted(names)
        super().__init__(f"no {kind} is called {name!r}")
        other_kinds = " and ".join(elsewhere)
        known = f"{name!r} is the name of another kind: {other_kinds}; " if other_kinds else ""
        self.hint = f"{known}{did_you_mean(str(name), names)}loopkit list {kind}"


class AmbiguousComponent(ComponentError):
    """Two plugins offer the same name."""

    def __init__(self, kind: str, name: str, offers: list[Offer]) -> None:
        offers = sorted(offers, key=lambda offer: offer.provider.package)
        origins = " and ".join(f"{offer.provider} ({offer.place})" for offer in offers)
        super().__init__(f"{kind} '{name}' is offered by {origins}")
        names = list(dict.fromkeys(f"{offer.provider.package}:{name}" for offer in offers))
        self.hint = f"select one: {' or '.join(names)}" if len(names) == len(offers) else "rename one of them"


class BrokenComponent(ComponentError):
    """The file of a plugin does not define the component that its entry point declares."""

    def __init__(self, offer: Offer) -> None:
        super().__init__(f"{offer.kind} '{offer.name}' of {offer.provider} cannot be used: {offer.problem}")
        self.hint = "loopkit doctor shows every plugin and its state"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``did you mean 'x'? `` where something close exists, else nothing."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'? " if close else ""


@dataclass(frozen=True)
class Catalog:
    """Components by kind and name.

    Args:
        offers: All offers, built-ins first.
    """

    offers: tuple[Offer, ...]

    def of(self, kind: str) -> Iterator[Offer]:
        """Yield all offers of a kind, built-ins first, in the order of their files."""
        return (offer for offer in self.offers if offer.kind == kind)

    def names(self, kind: str) -> list[str]:
        """Return the names that a recipe may use for this kind."""
        return list(dict.fromkeys(offer.name for offer in self.of(kind)))

    def get(self, kind: str, name: str) -> Schema:
        """Return the schema of a component.

        A built-in wins over a plugin of the same name, with a warning; ``package:name`` selects the plugin.

        Raises:
            UnknownComponent: If nothing has this name.
            AmbiguousComponent: If two plugins have it and no package is named.
            BrokenComponent: If the plugin's text cannot be read.
        """
        package, _, bare = name.rpartition(":")
        candidates = [o for o in self.of(kind) if o.name == bare and package in ("", o.provider.package)]
        if not candidates:
            elsewhere = [other for other in KINDS if other != kind and bare in self.names(other)]
            raise UnknownComponent(kind, name, self.names(kind), elsewhere)
        builtin = [offer for offer in candidates if offer.builtin]
        if not builtin and len(candidates) > 1:
            raise AmbiguousComponent(kind, bare, candidates)
        if builtin and len(candidates) > 1:
            other_kinds = ", ".join(f"{o.provider.package}:{bare} ({o.place})" for o in candidates if not o.builtin)
            warnings.warn(f"{kind} '{bare}' is loopkit's own; the plugin's is called {other_kinds}", stacklevel=2)
        offer = (builtin or candidates)[0]
        if offer.schema is None:
            raise BrokenComponent(offer)
        return offer.schema

    def load(self, kind: str, name: str) -> type:
        """Import a component's class."""
        return self.get(kind, name).load()

    def with_files(self, files: Iterable[Path]) -> Catalog:
        """Return this catalog with the components of local plugin files added.

        Raises:
            SourceProblem: If a file cannot be read as components, with its line.
        """
        there = {(o.kind, o.name, o.file.resolve()) for o in self.offers if o.file}
        added = []
        for file in dict.fromkeys(file.resolve() for file in files):
            provider = Provider(file.stem, "", "")
            offers = [Offer(s.kind, s.name, provider, file, s) for s in read_components(file, provider)]
            added += [o for o in offers if (o.kind, o.name, file) not in there]  # it may be installed as well
        return Catalog((*self.offers, *added))


def builtin_offers() -> Iterator[Offer]:
    """loopkit's own components, read from their files."""
    own_version = _own_version()
    for kind in KINDS:
        folder = COMPONENTS / kind
        files = sorted(folder.glob("*.py")) if folder.is_dir() else [COMPONENTS / f"{kind}.py"]
        for file in files:
            if not file.is_file():
                continue
            parts = file.relative_to(COMPONENTS.parent).with_suffix("").parts
            provider = Provider("loopkit", own_version, ".".join(("loopkit", *(p for p in parts if p != "__init__"))))
            for schema in read_components(file, provider):
                yield Offer(schema.kind, schema.name, provider, file, schema)


def _own_version() -> str:
    try:
        return version("loopkit")
    except PackageNotFoundError:
        return ""


@cache
def catalog(plugins: bool = True) -> Catalog:
    """Return the catalog of this environment: built-ins and, with ``plugins``, components of installed packages.

    Each package with a broken component causes one warning.
    """
    installed = tuple(installed_offers()) if plugins else ()
    broken: dict[str, Offer] = {}
    for offer in installed:
        if offer.problem:
            broken.setdefault(str(offer.provider), offer)
    for package, offer in broken.items():
        why = f"plugin {package} is broken: {offer.kind} '{offer.name}': {offer.problem}"
        warnings.warn(f"{why}; run loopkit doctor for details, or leave it out with --no-plugins", stacklevel=2)
    return Catalog((*builtin_offers(), *installed))
