"""Every kind: what the text says is what the class does, and the class says what it does."""

from __future__ import annotations

import importlib
import inspect
import typing
from typing import Any

from loopkit.registry import KINDS
from loopkit.registry.options import Use
from loopkit.registry.schema import Leaf, Option, Slot, SlotList, SlotMap
from loopkit.testing.case import ALL_KINDS, Violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest


@rule("signature", ALL_KINDS)
def signature(subject: ComponentUnderTest) -> None:
    """What loopkit reads from the text equals what Python makes of it."""
    cls, schema = subject.cls, subject.schema
    stated, read = cls.registration.traits, dict(schema.traits)  # type: ignore[attr-defined]
    if stated != read:
        raise Violation("the register call is not the one in the text", f"{stated} at run time, {read} in the text")
    parameters = list(inspect.signature(cls).parameters.values())
    positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    if positional != schema.wiring:
        raise Violation(
            "its wiring is not the one in the text", f"{positional} at run time, {schema.wiring} in the text"
        )
    keyword = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    if list(keyword) != list(schema.options):
        seen = f"{list(keyword)} at run time, {list(schema.options)} in the text"
        hint = "a constructor is read from its class, or from a base in the same file; write it there"
        raise Violation("its options are not the ones in the text", seen, hint)
    hints = typing.get_type_hints(cls.__init__, include_extras=True) if keyword else {}  # type: ignore[misc]
    for name, option in schema.options.items():
        _same_option(option, keyword[name].default, hints[name])


def _same_option(option: Option, default: Any, runtime: Any) -> None:
    if not _same(option.annotation, runtime):
        seen = f"{runtime} at run time, {option.annotation} in the text"
        raise Violation(f"option '{option.name}' has another type than its text says", seen)
    value = default.name if isinstance(default, Use) else default
    if not (option.required if default is inspect.Parameter.empty else option.default == value):
        seen = f"{value!r} at run time, {option.default!r} in the text"
        raise Violation(f"option '{option.name}' has another default than its text says", seen)


def _same(read: object, runtime: object) -> bool:
    """Whether an annotation read from text is what Python makes of it."""
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
    """It is a subclass of its kind's contract."""
    kind = KINDS[subject.schema.kind]
    base = getattr(importlib.import_module(f"loopkit.components.{kind.name}"), kind.contract)
    if not issubclass(subject.cls, base):
        hint = (
            f"from loopkit.components.{kind.name} import {kind.contract}; class {subject.cls.__name__}({kind.contract})"
        )
        raise Violation(f"it does not derive from {kind.contract}", f"bases: {subject.cls.__mro__[1:-1]}", hint)


@rule("docstring", ALL_KINDS)
def docstring(subject: ComponentUnderTest) -> None:
    """Its docstring opens with a sentence and explains every option."""
    if not subject.schema.summary.endswith("."):
        raise Violation(
            "its docstring does not open with a sentence", repr(subject.schema.summary), "it ends in a full stop"
        )
    silent = [option.name for option in subject.schema.options.values() if not option.doc]
    if silent:
        hint = "under Args:, one line each: what it is, its unit, its range; `loopkit show` and the editor read it"
        raise Violation(f"no line under Args: explains {', '.join(silent)}", hint=hint)
