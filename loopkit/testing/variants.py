"""Options to build a component with: small values for required ones, and each choice by itself."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union

from loopkit.registry.annotations import sibling_bounds
from loopkit.registry.catalog import Catalog
from loopkit.registry.options import Divides
from loopkit.registry.schema import Leaf, Option, Schema, Slot, SlotList

CANDIDATES: tuple[Any, ...] = (2, 0.5, 1, 0, 1.0, 3, 4, 8, 0.0, 2.0, -1, -1.0)
"""Numbers that are tried for an option, the first that its bounds allow."""

DEEPEST = 4
"""Components inside of components that are filled in."""


class Unguessable(ValueError):
    """A required option for which no small value can be found."""


@dataclass(frozen=True)
class Variant:
    """A way to build a component.

    Args:
        name: What is different from the default; empty for the default.
        options: As a recipe would write them.
        strict: Whether a refusal is a fault: it is for a declared choice, not for a value that was guessed.
    """

    name: str
    options: dict[str, Any]
    strict: bool = True


def complete(schema: Schema, given: Mapping[str, Any], catalog: Catalog, depth: int = 0) -> dict[str, Any]:
    """Options with every required one filled in, also inside the slots that are filled by default.

    Raises:
        Unguessable: If a required option can be anything.
    """
    options = dict(given)
    for name, option in schema.options.items():
        if name in options:
            continue
        if option.required:
            options[name] = _guess(option, schema, catalog, depth)
        elif isinstance(option.annotation, Slot) and isinstance(option.default, str):
            inner = complete(catalog.get(option.annotation.kind, option.default), {}, catalog, depth + 1)
            if inner:
                options[name] = {"type": option.default, **inner}
    return options


def variants(schema: Schema, options: Mapping[str, Any], catalog: Catalog) -> Iterator[Variant]:
    """The default; every other value of a choice; every optional part present, or absent."""
    yield Variant("", dict(options))
    for name, option in schema.options.items():
        match option.annotation:
            case Leaf(type=kind):
                current = options.get(name, option.default)
                for value in choices(kind):
                    if value != current or type(value) is not type(current):
                        yield Variant(f"{name}={json.dumps(value)}", {**options, name: value})
                number = _number(kind)
                if current is None and number is not None:
                    yield Variant(f"{name}={number}", {**options, name: number}, strict=False)
            case Slot(kind=kind, optional=True):
                if options.get(name, option.default) is None:
                    yield Variant(f"{name} given", {**options, name: _component(kind, schema, catalog)})
                else:
                    yield Variant(f"{name}=null", {**options, name: None})


def choices(kind: Any) -> list[Any]:
    """The values of a type that is a choice among few: literals and booleans, also joined with others."""
    if kind is bool:
        return [False, True]
    if typing.get_origin(kind) is Literal:
        return list(typing.get_args(kind))
    if typing.get_origin(kind) in (Union, types.UnionType):
        return [value for part in typing.get_args(kind) for value in choices(part)]
    return []


def _guess(option: Option, schema: Schema, catalog: Catalog, depth: int) -> Any:
    match option.annotation:
        case Slot(kind=kind):
            return _component(kind, schema, catalog, depth)
        case SlotList(kind=kind, at_least=least):
            return [_component(kind, schema, catalog, depth)] * max(least, 1)
        case Leaf(type=kind):
            found = next(iter(choices(kind)), _number(kind))
            if found is not None:
                return found
    raise Unguessable(
        f"option '{option.name}' of {schema.kind} '{schema.name}' is required and can be anything; give it with "
        f"--loopkit-options '{{\"{option.name}\": ...}}', or in the class: "
        f'conformance = {{"options": {{"{option.name}": ...}}}}'
    )


def _number(kind: Any) -> int | float | None:
    """A small number that a type accepts; ``None`` if it takes none, or a text or a path as well."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(kind)
    for value in CANDIDATES:
        try:
            adapter.validate_json(json.dumps(value), strict=True)
        except ValidationError:
            continue
        divides = any(isinstance(bound, Divides) for bound in sibling_bounds(kind))
        return 1 if divides and value == 0 else value
    return None


def _component(kind: str, schema: Schema, catalog: Catalog, depth: int = 0) -> dict[str, Any]:
    """The first component of a kind that can be completed and is not the one that asks."""
    for offer in catalog.of(kind):
        if offer.schema is None or depth >= DEEPEST or (offer.kind, offer.name) == (schema.kind, schema.name):
            continue
        try:
            return {"type": offer.name, **complete(offer.schema, {}, catalog, depth + 1)}
        except Unguessable:
            continue
    raise Unguessable(f"no {kind} can fill a slot of {schema.kind} '{schema.name}' by itself")
