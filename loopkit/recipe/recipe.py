"""A complete recipe: every value filled in, checked and traced to its origin."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path as FilePath
from typing import Any

from loopkit.recipe.format import Sections
from loopkit.recipe.identity import RecipeIdentity
from loopkit.recipe.layers import Layers, load_layers, overrides
from loopkit.recipe.merge import Merger
from loopkit.recipe.migration.renames import warn_of_old_files
from loopkit.recipe.node import Node, Origin, Path, Problem, RecipeError, from_plain
from loopkit.recipe.read import yaml_text
from loopkit.recipe.resolve import Known, Resolver
from loopkit.recipe.settings import layers_of, settings_of, without_effect
from loopkit.recipe.suppress import RootCauses
from loopkit.recipe.validation.combinations import OF_EVALUATION, RULES, check
from loopkit.registry.catalog import Catalog, ComponentError, catalog
from loopkit.registry.schema import Schema, SectionRef, Slot
from loopkit.registry.source import SourceProblem, read_sections
from loopkit.registry.spec import Spec

ROOT = SectionRef("Sections")


@dataclass(frozen=True, kw_only=True)
class Recipe(Sections):
    """A resolved recipe: its sections as attributes, components as specs.

    Args:
        name: Its file's stem, and the profiles in use.
        path: Its file, if it has one.
        values: The same as plain data, every default written out.
        origins: Where each value was written.
        specs: Every component chosen, by path.
    """

    name: str
    path: FilePath | None = None
    values: Mapping[str, Any] = field(repr=False)
    origins: Mapping[Path, Origin] = field(repr=False)
    specs: Mapping[Path, Spec] = field(repr=False)

    @property
    def identity(self) -> RecipeIdentity:
        """How values of this recipe, or of one that was saved from it, are compared and hashed."""
        return RecipeIdentity(format_sections(), self._schema_of)

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits of the values that differ from defaults.

        The hash identifies a run: it does not change when loopkit gains an option.
        """
        return self.identity.hash(self.values)

    def is_recipe_of(self, saved: Mapping[str, Any]) -> bool:
        """Check whether saved values of any version of loopkit are those of this recipe."""
        return self.identity.hash(self.identity.completed(saved)) == self.hash

    def _schema_of(self, path: Path, kind: str, name: str) -> Schema | None:
        spec = self.specs.get(path)
        return spec.schema if spec is not None and spec.name == name else None

    def to_yaml(self) -> str:
        """Return the recipe with every default written out; reading it gives the same recipe."""
        return yaml_text(self.values)


def completed_values(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved values with the default of every option that was added since."""

    def schema_of(path: Path, kind: str, name: str) -> Schema | None:
        try:
            return catalog().get(kind, name)
        except ComponentError:
            return None

    return RecipeIdentity(format_sections(), schema_of).completed(saved)


@cache
def format_sections() -> dict[str, Schema]:
    """Return the recipe format, read from its files, once."""
    return read_sections(*(FilePath(__file__).with_name(name) for name in ("format.py", "format_train.py")))


def load_recipe(
    recipe: str | FilePath,
    profiles: Sequence[str] = (),
    overrides: Sequence[str] = (),
    *,
    plugins: Iterable[FilePath] = (),
    installed: bool = True,
    saved: bool = False,
) -> Recipe:
    """Read, compose, check and resolve a recipe. Nothing is imported, built, downloaded or written.

    Args:
        recipe: A path, or the name of a shipped recipe.
        profiles: Applied in this order, after parents and recipe.
        overrides: ``--set`` arguments, ``key.path=value``, applied last.
        plugins: Files with further components.
        installed: Whether installed plugins count.
        saved: Whether it is the recipe of a run that exists: only what overrides can change is checked again.

    Raises:
        RecipeError: With every problem found.
    """
    layers = load_layers(recipe)
    return compose(layers, profiles, overrides, plugins=plugins, installed=installed, saved=saved)


def problems_of(recipe: str | FilePath, *, plugins: Iterable[FilePath] = (), installed: bool = True) -> list[Problem]:
    """Return every problem of a recipe, including those of its profiles.

    Raises:
        RecipeError: If the file or a parent cannot be read at all.
    """
    results = profiles_of(recipe, plugins=plugins, installed=installed)
    return RecipeError(
        problem for item in results if isinstance(item, RecipeError) for problem in item.problems
    ).problems


def profiles_of(
    recipe: str | FilePath, *, plugins: Iterable[FilePath] = (), installed: bool = True
) -> list[Recipe | RecipeError]:
    """Return a recipe without and with each of its profiles; a failure is returned as its error.

    Raises:
        RecipeError: If the file or a parent cannot be read at all.
    """
    layers = load_layers(recipe)
    results: list[Recipe | RecipeError] = []
    for chosen in ((), *((name,) for name in layers.profiles)):
        try:
            results.append(compose(layers, chosen, plugins=plugins, installed=installed))
        except RecipeError as error:
            results.append(error)
    return results


def compose(
    layers: Layers,
    profiles: Sequence[str] = (),
    texts: Sequence[str] = (),
    *,
    above: Sequence[Node] = (),
    plugins: Iterable[FilePath] = (),
    installed: bool = True,
    saved: bool = False,
) -> Recipe:
    """Merge the layers and resolve the result.

    Args:
        layers: Of one recipe.
        profiles: Those applied.
        texts: ``--set`` arguments.
        above: Further layers, on top of all.
        plugins: Files with further components.
        installed: Whether installed plugins count.
        saved: As for ``load_recipe``.

    Raises:
        RecipeError: With every problem found.
    """
    settings = settings_of([*overrides(texts), *above])
    written = [*layers.bodies, *layers.chosen(profiles), *layers_of(settings)]
    if not saved:
        warn_of_old_files(layers.bodies)
    # a sweep is not part of the recipes that it generates
    stack = [Node({key: item for key, item in node.value.items() if key != "sweep"}, node.origin) for node in written]
    plugins = list(plugins)
    merger = Merger(with_plugins(stack, catalog(installed), plugins), format_sections())
    composed: Node | None = None
    for layer in stack:
        composed = merger.merge(composed, layer, ROOT)
    assert composed is not None
    if ineffective := without_effect(settings, composed):
        raise RecipeError(ineffective)
    composed = _with_files(composed, plugins)
    walk = Resolver(merger, file=layers.bodies[-1].origin.file, saved=saved)
    if len(layers.bodies) > 1:
        walk.layers[("extends",)] = "parents"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain, typed = walk.section("Sections", composed, (), {})
    _repeat(caught)
    walk.problems += check(walk, plain or {}, RULES if not saved else OF_EVALUATION if settings else ())
    if problems := list(RootCauses(walk).problems()):
        raise RecipeError(problems)
    parts = {item.name: getattr(typed, item.name) for item in fields(Sections)}
    del plain["sweep"]
    name = "-".join((layers.name, *profiles))
    return Recipe(**parts, name=name, path=layers.path, values=plain, origins=walk.origins, specs=walk.specs)


def recipe_of(values: Mapping[str, Any], file: FilePath, overrides: Sequence[str] = ()) -> Recipe:
    """Check and resolve a recipe that a program has composed.

    Args:
        values: As a recipe would write it.
        file: Where it would be written: relative paths start at its folder, and its stem is the recipe's name.
        overrides: ``--set`` arguments, ``key.path=value``, applied last.

    Raises:
        RecipeError: With every problem found.
    """
    node = from_plain(dict(values), Origin(file.name, folder=file.resolve().parent))
    return replace(compose(Layers(file.stem, file, [node]), (), overrides), path=None)


def _repeat(caught: Iterable[warnings.WarningMessage]) -> None:
    """Emit each warning of a walk once."""
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        warnings.warn(message, stacklevel=4)


def with_plugins(stack: Sequence[Node], components: Catalog, extra: Iterable[FilePath]) -> Catalog:
    """Return the catalog with the components of the files that the recipe and the command line name."""
    files: dict[FilePath, Origin] = {file.resolve(): Origin("--plugins") for file in extra}
    for item in _plugin_nodes(stack):
        files[(item.origin.folder / str(item.value)).resolve()] = item.origin
    problems = []
    for file, origin in files.items():
        try:
            components = components.with_files([file])
        except SourceProblem as error:
            problems.append(Problem(origin, ("plugins",), str(error)))
    if problems:
        raise RecipeError(problems)
    return components


def _with_files(composed: Node, extra: Iterable[FilePath]) -> Node:
    """Return the recipe with the files of ``--plugins`` in its own list, so that a resumed run loads them."""
    plugins = composed.value.get("plugins")
    items = list(plugins.value) if plugins is not None and isinstance(plugins.value, list) else []
    there = {(item.origin.folder / str(item.value)).resolve() for item in items}
    origin = Origin("--plugins")
    added = [Node(str(file), origin) for file in dict.fromkeys(file.resolve() for file in extra) if file not in there]
    if not added:
        return composed
    return Node({**composed.value, "plugins": Node([*items, *added], origin)}, composed.origin)


def _plugin_nodes(stack: Sequence[Node]) -> Iterator[Node]:
    """Yield the entries of the last layer that names plugin files; lists replace."""
    lists = [node.value["plugins"] for node in stack if isinstance(node.value, dict) and "plugins" in node.value]
    if lists and isinstance(lists[-1].value, list):
        yield from (item for item in lists[-1].value if isinstance(item.value, str))


def component(kind: str, value: Any, *, among: Catalog | None = None, **siblings: Any) -> Spec:
    """Build the spec of a component from what a recipe would write.

    Args:
        kind: The kind.
        value: A name, or a map with ``type`` and options.
        among: Where names are looked up; None means the catalog of this environment.
        siblings: Values that bounds may name, such as ``width``.

    Raises:
        RecipeError: With every problem found.
    """
    merger = Merger(catalog() if among is None else among, format_sections())
    node = merger.merge(None, from_plain(value, Origin("component")), Slot(kind))
    walk = Resolver(merger)
    env = {name: Known(item, (name,)) for name, item in siblings.items()}
    if not isinstance(node.value, dict):
        raise RecipeError([Problem(node.origin, (), f"a {kind} is a name or a map with its options, not {value!r}")])
    _, spec = walk.component(kind, None, node, (kind,), env)
    if problems := list(RootCauses(walk).problems()):
        raise RecipeError(problems)
    return spec
