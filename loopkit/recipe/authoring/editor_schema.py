"""A JSON Schema of the recipe format and every component, so that an editor completes and explains recipes.

Recipes may leave out what they inherit, so nothing but the format's version is required; `loopkit validate` has the
last word.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from loopkit.recipe.authoring.describe import describe
from loopkit.recipe.recipe import format_sections
from loopkit.registry.catalog import Catalog
from loopkit.registry.kinds import KINDS
from loopkit.registry.schema import MISSING, Leaf, Option, Schema, SectionMap, SectionRef, Slot, SlotList, SlotMap

Json = dict[str, Any]


def editor_schema(catalog: Catalog) -> Json:
    """Return the JSON Schema (draft 7) of a recipe.

    Args:
        catalog: The components to offer, installed plugins included.
    """
    definitions: Json = {f"section.{name}": _section(schema) for name, schema in format_sections().items()}
    for kind in KINDS:
        schemas = [offer.schema for offer in catalog.of(kind) if offer.schema]
        definitions |= {f"{kind}.{schema.name}": _component(schema) for schema in schemas}
        definitions[kind] = _kind(kind, schemas)
    root = definitions.pop("section.Sections")
    partial = root | {
        "properties": {key: item for key, item in root["properties"].items() if key not in ("extends", "profiles")}
    }
    definitions["section.Sections"] = partial
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "loopkit recipe",
        **root,
        "required": ["loopkit"],
        "definitions": definitions,
    }


def _section(schema: Schema) -> Json:
    properties = {name: _option(option) for name, option in schema.options.items()}
    full: Json = {
        "type": "object",
        "description": schema.summary,
        "properties": properties,
        "additionalProperties": False,
    }
    words = schema.traits.get("words", {})
    short: list[Json] = [{"enum": list(words)}] if words else []
    if schema.short:
        short.append(properties[schema.short])
    return {"anyOf": [full, *short], "description": schema.summary} if short else full


def _component(schema: Schema) -> Json:
    properties: Json = {"type": {"const": schema.name, "description": schema.summary}}
    properties |= {name: _option(option) for name, option in schema.options.items()}
    return {"type": "object", "description": schema.doc, "properties": properties, "additionalProperties": False}


def _kind(kind: str, schemas: list[Schema]) -> Json:
    """Return what fills a slot: a name, a bare number for a component's first option, or a map; a map without ``type``
    refines."""
    names = sorted({schema.name for schema in schemas})
    words = [{"const": schema.name, "description": schema.summary} for schema in schemas]
    keys = sorted({name for schema in schemas for name in schema.options} | {"type"})
    cases = [
        {
            "if": {"properties": {"type": {"const": schema.name}}, "required": ["type"]},
            "then": {"$ref": f"#/definitions/{kind}.{schema.name}"},
        }
        for schema in schemas
    ]
    # an empty enum is not a valid schema: editors would then check nothing
    merged: Json = {"type": {"enum": names} if names else {"type": "string"}}
    merged |= {key: {} for key in keys if key != "type"}
    for schema in schemas:
        for name, option in schema.options.items():
            merged[name] = merged[name] or {"description": option.doc}
    inner: Json = {"type": "object", "properties": merged, "additionalProperties": False}
    if cases:
        inner["allOf"] = cases
    anywhere: list[Json] = [inner, {"anyOf": words} if words else {"type": "string"}]
    anywhere.append({"type": "string", "pattern": "^[^:]+:[a-z][a-z0-9_]*$"})
    if any(schema.short for schema in schemas):
        anywhere.append({"type": "number"})
    return {"description": KINDS[kind].summary, "anyOf": anywhere}


def _option(option: Option) -> Json:
    match option.annotation:
        case Leaf(type=kind):
            body = dict(_leaf(kind))
        case Slot(kind=kind, optional=optional):
            reference: Json = {"$ref": f"#/definitions/{kind}"}
            body = {"anyOf": [reference, {"type": "null"}]} if optional else {"allOf": [reference]}
        case SlotList(kind=kind):
            body = {"type": "array", "items": {"$ref": f"#/definitions/{kind}"}}
        case SlotMap(kind=kind):
            body = _slot_map(kind)
        case SectionRef(name=name):
            body = {"allOf": [{"$ref": f"#/definitions/section.{name}"}]}
        case SectionMap(name=name):
            body = {"type": "object", "additionalProperties": {"$ref": f"#/definitions/section.{name}"}}
    about = f"{option.doc} ({describe(option.annotation)})" if option.doc else describe(option.annotation)
    body["description"] = about
    if option.default is not MISSING:
        body["default"] = option.default
    return body


def _slot_map(kind: str) -> Json:
    entry: Json = {"anyOf": [{"$ref": f"#/definitions/{kind}"}, {"const": False}, {"type": "null"}]}
    return {"type": "object", "additionalProperties": entry}


@cache
def _leaf(kind: Any) -> Json:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).json_schema()
