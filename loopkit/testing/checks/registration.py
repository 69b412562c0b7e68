"""Every kind: the schema read from source text matches the class, and the docstring is complete."""

from __future__ import annotations

import importlib
import inspect
import typing
from typing import Any

from loopkit.registry import KINDS
from loopkit.registry.schema import Leaf, Option, Slot, SlotList, SlotMap
from loopkit.registry.spec import Use
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import ALL_KINDS, Violation, rule


@rule("signature", ALL_KINDS)
def signature(subject: ComponentUnderTest) -> None:
    """The schema that loopkit reads from source text matches the class at run time."""
    cls, schema = subject.cls, subject.schema
    stated, read = cls.registration.traits, dict(schema.traits)  # type: ignore[attr-defined]
    if stated != read:
        raise Violation(
            "the arguments of @register differ from its source text", f"{stated} at run time, {read} in the source"
        )
    parameters = list(inspect.signature(cls).parameters.values())
    positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    if positional != schema.wiring:
        raise Violation(
            "its wiring differs from its source text", f"{positional} at run time, {schema.wiring} in the source"
        )
    keyword = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    if list(keyword) != list(schema.options):
        seen = f"{list(keyword)} at run time, {list(schema.options)} in the source"
        hint = "define the constructor in the class, or in a base class in the same file"
        raise Violation("its options differ from its source text", seen, hint)
    hints = typing.get_type_hints(cls.__init__, include_extras=True) if keyword else {}  # type: ignore[misc]
    for name, option in schema.options.items():
        _check_option(option, keyword[name].default, hints[name])


def _check_option(option: Option, default: Any, runtime: Any) -> None:
    if not _is_same_type(option.annotation, runtime):
        seen = f"{runtime} at run time, {option.annotation} in the source"
        raise Violation(f"option '{option.name}' has another type than in its source text", seen)
    value = default.name if isinstance(default, Use) else default
    if not (option.required if default is inspect.Parameter.empty else option.default == value):
        seen = f"{value!r} at run time, {option.default!r} in the source"
        raise Violation(f"option '{option.name}' has another default than in its source text", seen)


def _is_same_type(read: object, runtime: object) -> bool:
    """Whether an annotation read from source text matches the one at run time."""
    text = str(runtime)
    match read:
        case Leaf(type=kind):
            return bool(kind == runtime)
        case Slot(optional=optional):
            return "Callable" in text and optional == ("None" in text)
        case SlotList():
            return "list[" in text and "Callable" in text
        case SlotMap():
            return "Callable" in text and typing.get_origin(runtime) is dict
    return False


@rule("contract", ALL_KINDS)
def contract(subject: ComponentUnderTest) -> None:
    """It is a subclass of the contract of its kind."""
    kind = KINDS[subject.schema.kind]
    base = getattr(importlib.import_module(f"loopkit.components.{kind.name}"), kind.contract)
    if not issubclass(subject.cls, base):
        hint = (
            f"from loopkit.components.{kind.name} import {kind.contract}; class {subject.cls.__name__}({kind.contract})"
        )
        raise Violation(f"it does not derive from {kind.contract}", f"bases: {subject.cls.__mro__[1:-1]}", hint)


@rule("docstring", ALL_KINDS)
def docstring(subject: ComponentUnderTest) -> None:
    """Its docstring starts with a sentence and documents every option."""
    if not subject.schema.summary.endswith("."):
        raise Violation(
            "its docstring does not start with a sentence", repr(subject.schema.summary), "end it with a full stop"
        )
    undocumented = [option.name for option in subject.schema.options.values() if not option.doc]
    if undocumented:
        hint = "under Args:, one line each: meaning, unit and range; `loopkit show` and editors display it"
        raise Violation(f"no line under Args: documents {', '.join(undocumented)}", hint=hint)
