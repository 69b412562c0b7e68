"""The variants of a component: small values for its required options, and one variant per choice."""

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
"""Candidate values of a number; the first that satisfies the bounds is used."""

MAX_DEPTH = 4
"""Levels of nested components that are completed."""


class Unguessable(ValueError):
    """The kit cannot guess a value of a required option."""


@dataclass(frozen=True)
class Variant:
    """One set of options of a component.

    Args:
        name: The difference from the default; empty for the default.
        options: As a recipe would write them.
        strict: Whether the component must accept it: it must for a declared choice, not for a guessed value.
    """

    name: str
    options: dict[str, Any]
    strict: bool = True


def complete(schema: Schema, options: Mapping[str, Any], catalog: Catalog, depth: int = 0) -> dict[str, Any]:
    """Fill in every required option, also in the components of default slots.

    Raises:
        Unguessable: If a required option accepts any value.
    """
    options = dict(options)
    for name, option in schema.options.items():
        if name in options:
            continue
        if option.required:
            options[name] = _guess(option, schema, catalog, depth)
        elif isinstance(option.annotation, Slot) and isinstance(option.default, str):
            nested = complete(catalog.get(option.annotation.kind, option.default), {}, catalog, depth + 1)
            if nested:
                options[name] = {"type": option.default, **nested}
    return options


def variants(schema: Schema, options: Mapping[str, Any], catalog: Catalog) -> Iterator[Variant]:
    """The default, every other value of a choice, and every optional component present or absent."""
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
                    yield Variant(f"{name} set", {**options, name: _component(kind, schema, catalog)})
                else:
                    yield Variant(f"{name}=null", {**options, name: None})


def choices(kind: Any) -> list[Any]:
    """The values of a literal or boolean type, also as part of a union."""
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
        case SlotList(kind=kind, at_least=minimum):
            return [_component(kind, schema, catalog, depth)] * max(minimum, 1)
        case Leaf(type=kind):
            value = next(iter(choices(kind)), _number(kind))
            if value is not None:
                return value
    raise Unguessable(
        f"option '{option.name}' of {schema.kind} '{schema.name}' is required and accepts any value; set it with "
        f"--loopkit-options '{{\"{option.name}\": ...}}', or in the class: "
        f'conformance = {{"options": {{"{option.name}": ...}}}}'
    )


def _number(kind: Any) -> int | float | None:
    """A small number that a type accepts, or ``None``."""
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
    """The first component of a kind, other than the schema's own, that can be completed."""
    for offer in catalog.of(kind):
        if offer.schema is None or depth >= MAX_DEPTH or (offer.kind, offer.name) == (schema.kind, schema.name):
            continue
        try:
            return {"type": offer.name, **complete(offer.schema, {}, catalog, depth + 1)}
        except Unguessable:
            continue
    raise Unguessable(f"no {kind} can fill a slot of {schema.kind} '{schema.name}' without options")
