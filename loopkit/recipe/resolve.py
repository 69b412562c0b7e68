"""Resolve a composed recipe: validate every value, fill in defaults, collect all problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from loopkit.recipe import format as recipe_format
from loopkit.recipe.authoring.describe import describe, format_divisors
from loopkit.recipe.merge import Merger, default_type
from loopkit.recipe.migration.renames import hint_for, hint_for_type
from loopkit.recipe.node import Node, Origin, Path, Problem
from loopkit.recipe.validation.value import WrongValue, default_values, validate_value
from loopkit.registry.annotations import sibling_bounds
from loopkit.registry.catalog import ComponentError
from loopkit.registry.options import Divides
from loopkit.registry.schema import Annotation, Leaf, Option, Schema, SectionMap, SectionRef, Slot, SlotList, SlotMap
from loopkit.registry.spec import Spec


@dataclass(frozen=True)
class UnknownKey:
    """An unknown key, with the schema of its map for hints."""

    path: Path
    key: str
    node: Node
    schema: Schema


@dataclass(frozen=True)
class Known:
    """A value that bounds of nested options may name, with its key."""

    value: Any
    path: Path


@dataclass
class Resolver:
    """Validates a composed recipe and collects its values and problems.

    Args:
        merger: Looks up schemas.
        classes: The module whose dataclasses the sections are.
        problems: Problems other than unknown keys.
        unknown: Keys that have no place.
        origins: Where each value came from.
        layers: The layer that set a key; keys left to their default are absent.
        chosen: The component in force at each slot, by path, whether or not its options are right.
        specs: The same with options, where all of them are right.
        maps: Options whose value is a map of plain values, as it was written.
        file: The recipe's own file, as messages show it; others are those of its parents.
        saved: Whether it is the recipe of an existing run: missing options take the value of the trait ``before``.
    """

    merger: Merger
    classes: ModuleType = recipe_format
    problems: list[Problem] = field(default_factory=list)
    unknown: list[UnknownKey] = field(default_factory=list)
    origins: dict[Path, Origin] = field(default_factory=dict)
    layers: dict[Path, str] = field(default_factory=dict)
    chosen: dict[Path, Schema] = field(default_factory=dict)
    specs: dict[Path, Spec] = field(default_factory=dict)
    maps: dict[Path, Node] = field(default_factory=dict)
    file: str = ""
    saved: bool = False

    def section(self, name: str, node: Node | None, path: Path, env: Mapping[str, Known]) -> tuple[Any, Any]:
        """Resolve a section; return it as plain data and as its dataclass."""
        schema = self.merger.sections[name]
        if node is not None and not isinstance(node.value, dict):
            self._wrong(node.origin, path, f"must be {describe(SectionRef(name))}, not {node.value!r}"[:200])
            return None, None
        entries = dict(node.value) if node else {}
        before = len(self.problems) + len(self.unknown)
        plain, typed = self._options(schema, entries, path, env, node.origin if node else None)
        if len(self.problems) + len(self.unknown) > before:
            return plain, None
        return plain, getattr(self.classes, name)(**typed)

    def component(
        self, kind: str, default: Any, node: Node | None, path: Path, env: Mapping[str, Known]
    ) -> tuple[Any, Any]:
        """Resolve one component; return it as plain data and as a spec."""
        entries = dict(node.value) if node else {}
        written = entries.pop("type", None)
        origin = written.origin if written else node.origin if node else Origin("default")
        name = written.value if written else default
        if name is None:
            self._without_type(kind, entries, origin, path)
            return None, None
        try:
            schema = self.merger.catalog.get(kind, str(name))
        except ComponentError as error:
            self._wrong(origin, path, str(error), hint_for_type(kind, str(name)) or error.hint)
            return None, None
        self.chosen[path] = schema
        self.origins[(*path, "type")] = origin
        if written:
            self.layers[(*path, "type")] = origin.layer
        before = len(self.problems) + len(self.unknown)
        plain, typed = self._options(schema, entries, path, env, origin)
        spec = Spec(kind, str(name), typed, schema)
        if len(self.problems) + len(self.unknown) == before:
            self.specs[path] = spec
        return {"type": str(name), **plain}, spec

    def _without_type(self, kind: str, entries: dict[str, Node], origin: Origin, path: Path) -> None:
        names = self.merger.catalog.names(kind)
        meant = [key for key, node in entries.items() if isinstance(node.value, str) and node.value in names]
        if meant:
            self._wrong(
                entries[meant[0]].origin,
                (*path, meant[0]),
                f"{kind} has no option '{meant[0]}'",
                "did you mean 'type'?",
            )
        else:
            self._wrong(
                origin, (*path, "type"), f"the type of the {kind} is missing", f"choose one of loopkit list {kind}"
            )

    def _options(
        self, schema: Schema, entries: dict[str, Node], path: Path, env: Mapping[str, Known], origin: Origin | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        for key, node in entries.items():
            if key in schema.options:
                self.layers[(*path, key)] = node.origin.layer
            else:
                self.unknown.append(UnknownKey(path, key, node, schema))
        if self.saved:
            before = Origin("before the option was added")
            entries = {key: Node(value, before) for key, value in schema.traits.get("before", {}).items()} | entries
        plain: dict[str, Any] = {}
        typed: dict[str, Any] = {}
        inner = dict(env)
        for key, option in schema.options.items():
            plain[key], typed[key] = self._value(option, entries.get(key), (*path, key), inner, schema, origin)
            if schema.kind == "section":
                inner[key] = Known(typed[key], (*path, key))
        siblings = dict(env) | {key: Known(value, (*path, key)) for key, value in typed.items()}
        for key, option in schema.options.items():
            self._sibling_bounds(option, typed[key], (*path, key), siblings)
        self._alternatives(schema, entries, path, origin)
        return plain, typed

    def _value(
        self,
        option: Option,
        node: Node | None,
        path: Path,
        env: Mapping[str, Known],
        schema: Schema,
        parent: Origin | None,
    ) -> tuple[Any, Any]:
        annotation = option.annotation
        if isinstance(annotation, SectionRef):
            if node is None and annotation.optional:
                return None, None
            return self.section(annotation.name, node, path, env)
        if node is None and option.required:
            doc = f": {option.doc[0].lower()}{option.doc[1:].rstrip('.')}" if option.doc else ""
            self._wrong(self._written(parent), path, "is required", f"add {describe(annotation)}{doc}")
            return None, None
        self.origins[path] = node.origin if node else Origin("default", str(schema.file), option.line)
        match annotation:
            case Leaf():
                return self._leaf(option, annotation, node, path, schema)
            case Slot(kind=kind, optional=optional):
                return self._slot(option, kind, optional, node, path, env)
            case SlotMap(kind=kind):
                return self._slot_map(annotation, kind, node, path, env)
            case SlotList():
                return self._slot_list(annotation, node, path, env)
            case SectionMap(name=name):
                return self._section_map(name, node, path, env)

    def _section_map(self, name: str, node: Node | None, path: Path, env: Mapping[str, Known]) -> tuple[Any, Any]:
        if node is None:
            return {}, {}
        if not isinstance(node.value, dict):
            self._wrong(node.origin, path, f"must be a map, not {node.value!r}"[:200])
            return None, None
        plain, typed = {}, {}
        for key, item in node.value.items():
            plain[key], typed[key] = self.section(name, item, (*path, key), env)
        return plain, typed

    def _leaf(self, option: Option, leaf: Leaf, node: Node | None, path: Path, schema: Schema) -> tuple[Any, Any]:
        if node is None:
            return default_values(option.default, leaf)
        if isinstance(node.value, dict):
            self.maps[path] = node
        try:
            return validate_value(node, leaf)
        except WrongValue as error:
            hint = hint_for(schema.kind, schema.name, option.name, node.value)
            self._wrong(node.origin, path, str(error), hint)
            return None, None

    def _slot(
        self, option: Option, kind: str, optional: bool, node: Node | None, path: Path, env: Mapping[str, Known]
    ) -> tuple[Any, Any]:
        if (node is None and option.default is None) or (node is not None and node.value is None and optional):
            return None, None
        if node is not None and not isinstance(node.value, dict):
            return self._not_a_component(kind, node, path)
        return self.component(kind, default_type(option), node, path, env)

    def _slot_map(
        self, annotation: Annotation, kind: str, node: Node | None, path: Path, env: Mapping[str, Known]
    ) -> tuple[Any, Any]:
        if node is None:
            return {}, {}
        if not isinstance(node.value, dict):
            self._wrong(node.origin, path, f"must be {describe(annotation)}, not {node.value!r}"[:200])
            return None, None
        plain, typed = {}, {}
        for name, item in node.value.items():
            if item.value is False:
                continue
            self.layers[(*path, name)] = item.origin.layer
            self.origins[(*path, name)] = item.origin
            if isinstance(item.value, dict):
                plain[name], typed[name] = self.component(kind, name, item, (*path, name), env)
            else:
                self._not_a_component(kind, item, (*path, name), "a map of its options, {}, or false to remove it")
        return plain, typed

    def _slot_list(
        self, annotation: SlotList, node: Node | None, path: Path, env: Mapping[str, Known]
    ) -> tuple[Any, Any]:
        if node is None:
            return [], []
        if not isinstance(node.value, list) or len(node.value) < annotation.at_least:
            self._wrong(node.origin, path, f"must be {describe(annotation)}, not {node.plain()!r}"[:200])
            return [], []
        kind = annotation.kind
        plain, typed = [], []
        for number, item in enumerate(node.value):
            place = (*path, str(number))
            is_map = isinstance(item.value, dict)
            one = self.component(kind, None, item, place, env) if is_map else self._not_a_component(kind, item, place)
            plain.append(one[0])
            typed.append(one[1])
        return plain, typed

    def _not_a_component(self, kind: str, node: Node, path: Path, expected: str = "") -> tuple[None, None]:
        expected = expected or f"the name of {describe(Slot(kind))} or a map with its options"
        shown = "null" if node.value is None else repr(node.plain())
        self._wrong(node.origin, path, f"must be {expected}, not {shown}"[:200], f"loopkit list {kind}")
        return None, None

    def _sibling_bounds(self, option: Option, value: Any, path: Path, siblings: Mapping[str, Known]) -> None:
        """Check bounds that name another value; they are skipped if that value is missing or wrong."""
        if not isinstance(option.annotation, Leaf) or value is None:
            return
        for bound in sibling_bounds(option.annotation.type):
            other = siblings.get(bound.name)
            if other is None or not isinstance(other.value, int | float):
                continue
            if isinstance(bound, Divides):
                fails, what, hint = (
                    other.value % value != 0,
                    "does not divide",
                    f"use {format_divisors(int(other.value))}",
                )
            else:
                fails, what, hint = value > other.value, "is more than", f"use {other.value} or less"
            if fails:
                message = f"{value} {what} {'.'.join(other.path)} ({other.value})"
                self._wrong(self.origins[path], path, message, hint, depends=(path, other.path))

    def _alternatives(self, schema: Schema, entries: dict[str, Node], path: Path, origin: Origin | None) -> None:
        group = schema.traits.get("exactly_one", ())
        present = [key for key in group if key in entries and entries[key].value is not None]
        if not group or len(present) == 1:
            return
        names = ", ".join(group[:-1]) + " and " + group[-1]
        depends = tuple((*path, key) for key in group)
        if not present:
            self._wrong(self._written(origin), path, f"exactly one of {names} is required", depends=depends)
        else:
            why = f"{' and '.join(present)} exclude each other"
            self._wrong(entries[present[-1]].origin, path, why, f"keep one of {names}", depends)

    def _written(self, origin: Origin | None) -> Origin:
        """Return a place in the recipe, or its file if the value above is a default."""
        if origin is not None and origin.layer != "default":
            return origin
        return Origin(self.file or "recipe", file=self.file)

    def _wrong(self, origin: Origin, path: Path, message: str, hint: str = "", depends: tuple[Path, ...] = ()) -> None:
        self.problems.append(Problem(origin, path, message, hint, depends or (path,)))
