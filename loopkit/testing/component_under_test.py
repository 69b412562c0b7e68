"""The component under test: found, its options filled in, its variants listed."""

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
"""Class attribute in which a component may say what the kit needs: ``{"options": {...}, "model": {...}}``; a tokenizer
that takes some texts alone also ``"texts": [...]``."""


class ComponentNotFound(UserError):
    """What should be tested cannot be found, or is no component."""


@dataclass(eq=False)
class ComponentUnderTest:
    """A component under test.

    Args:
        schema: What its source text says.
        catalog: Where it and its neighbours are found.
        given: Options to build it with.
        model: Components to have around it, by kind.
        outcomes: What each check that has run raised.
        memo: What checks have computed for each other.
    """

    schema: Schema
    catalog: Catalog
    given: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    outcomes: dict[str, Exception | None] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def cls(self) -> type:
        """Its class."""
        return self.schema.load()

    @property
    def marked(self) -> Mapping[str, Any]:
        """What its class says for the kit."""
        found: Mapping[str, Any] = getattr(self.cls, MARKER, {})
        return found

    @property
    def traits(self) -> Mapping[str, Any]:
        """What its registration states."""
        return self.schema.traits

    def lacks(self, capability: str) -> bool:
        """Whether it states that it does without something."""
        return capability in self.traits.get("lacks", ())

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options of the default variant: those given, and values for required ones."""
        marked = self.marked.get("options", {})
        return complete(self.schema, {**marked, **self.given}, self.catalog)

    @cached_property
    def variants(self) -> list[Variant]:
        """The default, then each choice and each optional part by itself."""
        return list(variants(self.schema, self.options, self.catalog))

    @property
    def around(self) -> dict[str, Any]:
        """What it wants around it in a model, by kind."""
        return {**self.marked.get("model", {}), **self.model}

    def choice(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The component as a recipe would write it."""
        return {"type": self.name, **(self.options if options is None else options)}

    @property
    def name(self) -> str:
        """How recipes call it where a built-in has its name too."""
        offers = [offer for offer in self.catalog.of(self.schema.kind) if offer.name == self.schema.name]
        return self.schema.name if len(offers) == 1 else f"{self.schema.provider.package}:{self.schema.name}"

    def spec(self, options: Mapping[str, Any] | None = None) -> Spec:
        """The component chosen, its options checked.

        Raises:
            RecipeError: If the options do not fit.
        """
        from loopkit.recipe import component

        return component(self.schema.kind, self.choice(options), among=self.catalog, width=16)

    def build(self, options: Mapping[str, Any] | None = None, **wiring: Any) -> Any:
        """The component built."""
        return self.spec(options).build(**wiring)

    def __str__(self) -> str:
        return f"{self.schema.kind} '{self.schema.name}' ({self.schema.file}:{self.schema.line})"


def find_component(
    component: str | type,
    options: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    plugins: Sequence[Path] = (),
) -> ComponentUnderTest:
    """The subject that a class, ``module:Class``, ``file.py:Class``, ``kind/name`` or bare name means.

    Raises:
        NoSubject: If there is none, it cannot be imported, or options or surroundings are named that do not exist.
        SourceProblem: If its constructor cannot be read.
    """
    known = catalog().with_files(plugins)
    schema, known = _of_class(component, known) if isinstance(component, type) else _of_text(component, known)
    subject = ComponentUnderTest(schema, known, options or {}, model or {})
    with _importing(str(schema.file)):
        assert isinstance(subject.cls, type)
    if unknown := set(subject.given) - set(schema.options):
        names = ", ".join(schema.options) or "none"
        raise ComponentNotFound(f"{subject} has no option {', '.join(sorted(unknown))}; options: {names}")
    if unknown := set(subject.around) - set(KINDS):
        raise ComponentNotFound(f"{', '.join(sorted(unknown))}: no kind is called so; surroundings are given by kind")
    return subject


def _of_text(text: str, known: Catalog) -> tuple[Schema, Catalog]:
    place, colon, name = text.rpartition(":")
    if not colon:
        return _registered(text, known)
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise ComponentNotFound(f"there is no file {place}")
        return _of_file(Path(place).resolve(), name, Provider(Path(place).stem, "", ""), known)
    sys.path.insert(0, "")  # as `python -m pytest` has it: the package under test may lie in the current folder
    try:
        with _importing(place):
            module = importlib.import_module(place)
    finally:
        sys.path.remove("")
    cls = getattr(module, name, None)
    if not isinstance(cls, type):
        there = [n for n, v in vars(module).items() if isinstance(v, type) and "registration" in vars(v)]
        raise ComponentNotFound(f"{place} has no class {name}; its components: {', '.join(there) or 'none'}")
    return _of_class(cls, known)


@contextmanager
def _importing(place: str) -> Iterator[None]:
    """Report what a module raises when it is imported in one line, with the place that raised."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and place.startswith(error.name):
            raise ComponentNotFound(
                f"no module is called {place}; install the package, or start in its folder"
            ) from None
        raise ComponentNotFound(f"{place} cannot be imported: {error}{_line(error)}") from error
    except UserError as error:
        raise ComponentNotFound(str(error)) from error
    except Exception as error:
        raise ComponentNotFound(f"{place} cannot be imported: {type(error).__name__}: {error}{_line(error)}") from error


def _line(error: Exception) -> str:
    """The innermost line outside of loopkit and of Python's own import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not Path(frame.filename).is_relative_to(PACKAGE)
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _registered(text: str, known: Catalog) -> tuple[Schema, Catalog]:
    kind, slash, name = text.partition("/")
    kinds = [kind] if slash else [k for k in KINDS if text in known.names(k)]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        also = (
            f": {', '.join(f'{k}/{text}' for k in kinds)}"
            if kinds
            else "; write module:Class, file.py:Class, kind/name"
        )
        raise ComponentNotFound(f"{text!r} names {'several components' if kinds else 'no component'}{also}")
    try:
        return known.get(kinds[0], name if slash else text), known
    except ComponentError as error:
        raise ComponentNotFound(f"{error}; {getattr(error, 'hint', '')}") from None


def _of_class(cls: type, known: Catalog) -> tuple[Schema, Catalog]:
    if "registration" not in vars(cls):
        raise ComponentNotFound(f'{cls.__module__}.{cls.__qualname__} carries no @register("kind", "name")')
    if "<locals>" in cls.__qualname__:
        raise ComponentNotFound(f"{cls.__qualname__} stands inside a function; a component is a class of a module")
    file = Path(inspect.getfile(cls)).resolve()
    local = cls.__module__.startswith("loopkit_local_")
    module = "" if local else cls.__module__
    return _of_file(file, cls.__name__, Provider(file.stem if local else module.partition(".")[0], "", module), known)


def _of_file(file: Path, name: str, provider: Provider, known: Catalog) -> tuple[Schema, Catalog]:
    """A class of a file, in the catalog where the package's entry point put it or else added to it."""
    for offer in known.offers:
        if offer.schema and offer.file and offer.file.resolve() == file and offer.schema.qualname == name:
            return offer.schema, known
    schemas = {schema.qualname: schema for schema in read_components(file, provider)}
    if name not in schemas:
        raise ComponentNotFound(f"{file} has no component {name}; components: {', '.join(schemas) or 'none'}")
    there = {(offer.kind, offer.name, offer.file and offer.file.resolve()) for offer in known.offers}
    added = [
        Offer(schema.kind, schema.name, provider, file, schema)
        for schema in schemas.values()
        if (schema.kind, schema.name, file) not in there
    ]
    return schemas[name], Catalog((*known.offers, *added))
