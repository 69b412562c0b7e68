"""The component under test, with its options and variants."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.registry import KINDS
from loopkit.registry.catalog import Catalog, ComponentError, Offer, catalog
from loopkit.registry.schema import Provider, Schema
from loopkit.registry.source import read_components
from loopkit.registry.spec import Spec
from loopkit.testing.variants import Variant, complete, variants

PACKAGE = Path(__file__).resolve().parents[1]
MARKER = "conformance"
"""Class attribute that configures the checks of a component: ``{"options": {...}, "model": {...}}``; a tokenizer that
accepts only certain texts adds ``"texts": [...]``."""


class ComponentNotFound(UserError):
    """The component to test does not exist, or the class is not a component."""


@dataclass(eq=False)
class ComponentUnderTest:
    """A component under test.

    Args:
        schema: Its schema, read from source text.
        catalog: The components that are available to it.
        explicit_options: Options that the caller set.
        model: The other components of the model, by kind.
        outcomes: The exception of each check that has run, or ``None``.
        memo: Results that several checks share.
    """

    schema: Schema
    catalog: Catalog
    explicit_options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    outcomes: dict[str, Exception | None] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def cls(self) -> type:
        """The class."""
        return self.schema.load()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings for the kit that its class declares."""
        settings: Mapping[str, Any] = getattr(self.cls, MARKER, {})
        return settings

    @property
    def traits(self) -> Mapping[str, Any]:
        """The traits of its registration."""
        return self.schema.traits

    def lacks(self, capability: str) -> bool:
        """Whether its registration lists a capability under ``lacks``."""
        return capability in self.traits.get("lacks", ())

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options of the default variant: those set, and guessed values for the other required ones."""
        declared = self.settings.get("options", {})
        return complete(self.schema, {**declared, **self.explicit_options}, self.catalog)

    @cached_property
    def variants(self) -> list[Variant]:
        """The default, then one variant for each choice and each optional part."""
        return list(variants(self.schema, self.options, self.catalog))

    @property
    def surroundings(self) -> dict[str, Any]:
        """The components that it requires in the rest of the model, by kind."""
        return {**self.settings.get("model", {}), **self.model}

    def choice(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The component as a recipe would write it."""
        return {"type": self.name, **(self.options if options is None else options)}

    @property
    def name(self) -> str:
        """Its name in recipes, with the package in front if another component has the same name."""
        offers = [offer for offer in self.catalog.of(self.schema.kind) if offer.name == self.schema.name]
        return self.schema.name if len(offers) == 1 else f"{self.schema.provider.package}:{self.schema.name}"

    def spec(self, options: Mapping[str, Any] | None = None) -> Spec:
        """The component as a ``Spec``, with validated options.

        Raises:
            RecipeError: If the options do not fit.
        """
        from loopkit.recipe import component

        return component(self.schema.kind, self.choice(options), among=self.catalog, width=16)

    def build(self, options: Mapping[str, Any] | None = None, **wiring: Any) -> Any:
        """Build the component."""
        return self.spec(options).build(**wiring)

    def __str__(self) -> str:
        return f"{self.schema.kind} '{self.schema.name}' ({self.schema.file}:{self.schema.line})"


def find_component(
    component: str | type,
    options: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    plugins: Sequence[Path] = (),
) -> ComponentUnderTest:
    """Find a component by class, ``module:Class``, ``file.py:Class``, ``kind/name`` or bare name.

    Raises:
        ComponentNotFound: If it does not exist or cannot be imported, or has no such options or surroundings.
        SourceProblem: If its constructor cannot be read.
    """
    available = catalog().with_files(plugins)
    if isinstance(component, type):
        schema, available = _find_class(component, available)
    else:
        schema, available = _find_by_name(component, available)
    subject = ComponentUnderTest(schema, available, options or {}, model or {})
    with _importing(str(schema.file)):
        assert isinstance(subject.cls, type)
    if unknown := set(subject.explicit_options) - set(schema.options):
        names = ", ".join(schema.options) or "none"
        raise ComponentNotFound(f"{subject} has no option {', '.join(sorted(unknown))}; options: {names}")
    if unknown := set(subject.surroundings) - set(KINDS):
        raise ComponentNotFound(f"unknown kind {', '.join(sorted(unknown))}; kinds: {', '.join(KINDS)}")
    return subject


def _find_by_name(text: str, available: Catalog) -> tuple[Schema, Catalog]:
    location, colon, name = text.rpartition(":")
    if not colon:
        return _find_registered(text, available)
    if location.endswith(".py"):
        if not Path(location).is_file():
            raise ComponentNotFound(f"file not found: {location}")
        return _find_in_file(Path(location).resolve(), name, Provider(Path(location).stem, "", ""), available)
    sys.path.insert(0, "")  # as in `python -m pytest`: the package under test may be in the current folder
    try:
        with _importing(location):
            module = importlib.import_module(location)
    finally:
        sys.path.remove("")
    cls = getattr(module, name, None)
    if not isinstance(cls, type):
        names = [n for n, v in vars(module).items() if isinstance(v, type) and "registration" in vars(v)]
        raise ComponentNotFound(f"{location} has no class {name}; its components: {', '.join(names) or 'none'}")
    return _find_class(cls, available)


@contextmanager
def _importing(location: str) -> Iterator[None]:
    """Convert an exception during an import into one line with its location."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and location.startswith(error.name):
            raise ComponentNotFound(
                f"no module named {location}; install the package, or run pytest in its folder"
            ) from None
        raise ComponentNotFound(f"{location} cannot be imported: {error}{_line(error)}") from error
    except UserError as error:
        raise ComponentNotFound(str(error)) from error
    except Exception as error:
        raise ComponentNotFound(
            f"{location} cannot be imported: {type(error).__name__}: {error}{_line(error)}"
        ) from error


def _line(error: Exception) -> str:
    """The innermost line outside of loopkit and of Python's own import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not Path(frame.filename).is_relative_to(PACKAGE)
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _find_registered(text: str, available: Catalog) -> tuple[Schema, Catalog]:
    kind, slash, name = text.partition("/")
    kinds = [kind] if slash else [k for k in KINDS if text in available.names(k)]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        also = (
            f": {', '.join(f'{k}/{text}' for k in kinds)}"
            if kinds
            else "; write module:Class, file.py:Class, kind/name"
        )
        raise ComponentNotFound(f"{text!r} names {'several components' if kinds else 'no component'}{also}")
    try:
        return available.get(kinds[0], name if slash else text), available
    except ComponentError as error:
        raise ComponentNotFound(f"{error}; {getattr(error, 'hint', '')}") from None


def _find_class(cls: type, available: Catalog) -> tuple[Schema, Catalog]:
    if "registration" not in vars(cls):
        raise ComponentNotFound(f'{cls.__module__}.{cls.__qualname__} has no @register("kind", "name") decorator')
    if "<locals>" in cls.__qualname__:
        raise ComponentNotFound(
            f"{cls.__qualname__} is defined inside a function; define the component at the top level of a module"
        )
    file = Path(inspect.getfile(cls)).resolve()
    local = cls.__module__.startswith("loopkit_local_")
    module = "" if local else cls.__module__
    return _find_in_file(
        file, cls.__name__, Provider(file.stem if local else module.partition(".")[0], "", module), available
    )


def _find_in_file(file: Path, name: str, provider: Provider, available: Catalog) -> tuple[Schema, Catalog]:
    """A class of a file, with a catalog that contains it."""
    for offer in available.offers:
        if offer.schema and offer.file and offer.file.resolve() == file and offer.schema.qualname == name:
            return offer.schema, available
    schemas = {schema.qualname: schema for schema in read_components(file, provider)}
    if name not in schemas:
        raise ComponentNotFound(f"{file} has no component {name}; components: {', '.join(schemas) or 'none'}")
    present = {(offer.kind, offer.name, offer.file and offer.file.resolve()) for offer in available.offers}
    added = [
        Offer(schema.kind, schema.name, provider, file, schema)
        for schema in schemas.values()
        if (schema.kind, schema.name, file) not in present
    ]
    return schemas[name], Catalog((*available.offers, *added))
