"""What identifies a recipe while loopkit grows: the values that differ from defaults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from loopkit.recipe.migration.renames import is_old, new_type, rename_plain
from loopkit.recipe.node import Path
from loopkit.registry.schema import Option, Schema, SectionRef, Slot, SlotList, SlotMap

LABELS = ("loopkit", "description", "paper", "extends", "profiles")
"""Keys that describe a recipe or its composition, without effect on the experiment."""

SchemaOf = Callable[[Path, str, str], Schema | None]
"""Path, kind and name of a component to its schema; None if it is not known."""

Values = Mapping[str, Any]
Convert = Callable[[Schema, Values, Path], dict[str, Any]]
"""Converts the values of one section or component at a path."""


@dataclass(frozen=True)
class RecipeIdentity:
    """Resolved values without or with their defaults.

    Args:
        sections: The recipe format.
        schema_of: Looks up components. A component that it does not know keeps the values that it has.
        old: Whether the values are written in format 1; ``completed`` finds out.
    """

    sections: Mapping[str, Schema]
    schema_of: SchemaOf
    old: bool = False

    def reduced(self, values: Values) -> dict[str, Any]:
        """Return the values that differ from their defaults, without ``LABELS``.

        A component is left out if it is the default of its slot and all its options are defaults.
        """
        reduced = self._reduced_map(self.sections["Sections"], values, ())
        return {key: value for key, value in reduced.items() if key not in LABELS}

    def completed(self, values: Values) -> dict[str, Any]:
        """Return the values in the present format, with every option that was added after they were saved.

        Such an option has its default, or the value of the trait ``before`` if earlier runs used another one.
        """
        identity = replace(self, old=is_old(values))
        full = identity._completed_map(self.sections["Sections"], values, ())
        return {key: value for key, value in full.items() if key != "sweep"}  # not part of a recipe

    def hash(self, values: Values) -> str:
        """Return twelve hexadecimal digits of the reduced values; they do not change when loopkit gains an option."""
        return value_digest(_numbers(self.reduced(values)), 12)

    def _reduced_map(self, schema: Schema, values: Values, path: Path) -> dict[str, Any]:
        reduced_values = {}
        for key, value in values.items():
            option = schema.options.get(key)
            if option is None:
                reduced_values[key] = value
            elif not self._is_default(option, reduced := self._nested(self._reduced_map, option, value, (*path, key))):
                reduced_values[key] = reduced
        return reduced_values

    def _is_default(self, option: Option, reduced: Any) -> bool:
        match option.annotation:
            case SectionRef():
                return reduced is None or reduced == {}
            case Slot() if isinstance(reduced, Mapping):
                return bool(reduced == {"type": option.default})
        return not option.required and bool(reduced == _plain(option.default))

    def _completed_map(self, schema: Schema, values: Values, path: Path) -> dict[str, Any]:
        if self.old:
            values = rename_plain(values, schema.kind, schema.name)
        full, before = dict(values), schema.traits.get("before", {})
        for key, option in schema.options.items():
            if key in values:
                full[key] = self._nested(self._completed_map, option, values[key], (*path, key))
            elif key in before:
                full[key] = before[key]
            elif not option.required or isinstance(option.annotation, SectionRef):
                full[key] = self._nested(self._completed_map, option, self._default(option), (*path, key))
        return full

    @staticmethod
    def _default(option: Option) -> Any:
        match option.annotation:
            case SectionRef(optional=optional):
                return None if optional else {}
            case Slot():
                return None if option.default is None else {"type": option.default}
        return _plain(option.default)

    def _nested(self, convert: Convert, option: Option, value: Any, path: Path) -> Any:
        """Convert the section or the components of an option; return any other value unchanged."""
        match option.annotation:
            case SectionRef(name=name) if isinstance(value, Mapping):
                return convert(self.sections[name], value, path)
            case Slot(kind=kind):
                return self._component(convert, kind, value, path)
            case SlotMap(kind=kind) if isinstance(value, Mapping):
                names = {new_type(kind, name) if self.old else name: item for name, item in value.items()}
                return {name: self._component(convert, kind, item, (*path, name)) for name, item in names.items()}
            case SlotList(kind=kind) if isinstance(value, list):
                return [self._component(convert, kind, item, (*path, str(n))) for n, item in enumerate(value)]
        return value

    def _component(self, convert: Convert, kind: str, value: Any, path: Path) -> Any:
        if not isinstance(value, Mapping):
            return value
        if self.old:
            value = {**value, "type": new_type(kind, value.get("type"))}
        schema = self.schema_of(path, kind, str(value.get("type")))
        return value if schema is None else convert(schema, value, path)


def value_digest(value: Any, digits: int = 6) -> str:
    """Return the first hexadecimal digits of the SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:digits]


def _plain(default: Any) -> Any:
    return json.loads(json.dumps(default))


def _numbers(value: Any) -> Any:
    """Return the same value, in which a whole number is written in one way: 1 and 1.0 are the same setting."""
    if isinstance(value, Mapping):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
