"""Text that describes what an option accepts: for messages, `loopkit show`, the editor and the docs."""

from __future__ import annotations

import re
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any, Union

import annotated_types as bounds

from loopkit.registry.options import AtMost, Divides
from loopkit.registry.schema import Annotation, Leaf, SectionRef, Slot, SlotList, SlotMap

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", Path: "a path", None: "null"}


def describe(annotation: Annotation) -> str:
    """Describe in one line what an option accepts."""
    match annotation:
        case Leaf(type=kind):
            return describe_type(kind)
        case Slot(kind=kind, optional=optional):
            article = "an" if kind[0] in "aeio" or kind in ("lr", "mlp") else "a"
            return f"{article} {kind}{' or null' if optional else ''}"
        case SlotList(kind=kind, at_least=least):
            return f"a list{f' of at least {least}' if least else ''}, each entry one {kind}"
        case SlotMap(kind=kind):
            return f"a map, each entry one {kind}"
        case SectionRef(name=name):
            return f"a map with the options of {_section_key(name)}"
    return "a map of partial recipes"


def format_divisors(number: int) -> str:
    """List the divisors of a number, the largest one too if there are many: ``1, 2, 4, 8, 16 ... or 256``."""
    divisors = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
    if len(divisors) > 6:
        return f"{', '.join(map(str, divisors[:5]))} ... or {number}"
    return " or ".join(filter(None, [", ".join(map(str, divisors[:-1])), str(divisors[-1])]))


def _section_key(name: str) -> str:
    """Return the recipe key of a section's class: ``loss_spike`` for ``LossSpikeConfig``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Config")).lower()


@cache
def describe_type(kind: Any) -> str:
    """Describe a Python annotation of an option."""
    if kind in _WORDS:
        return _WORDS[kind]
    if kind is type(None):
        return "null"
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        limits = [_bound(marker) for marker in kind.__metadata__]
        text = " ".join([describe_type(parts[0]), " and ".join(limit for limit in limits if limit)]).strip()
        return text.replace(" and that divides", " that divides")
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(part) for part in parts)
    if origin is typing.Literal:
        return " or ".join(repr(part) if isinstance(part, str) else str(part) for part in parts)
    if kind is dict or origin is dict:
        plain = not parts or parts[-1] is Any
        return "a map" if plain else f"a map, each entry {describe_type(parts[-1])}"
    if origin in (list, tuple):
        inner = describe_type(parts[0]) if parts else "values"
        return f"a list, each entry {inner}"
    return "anything" if kind is Any else getattr(kind, "__name__", str(kind))


def _bound(marker: Any) -> str:
    match marker:
        case bounds.Gt(gt=limit):
            return f"> {limit}"
        case bounds.Ge(ge=limit):
            return f">= {limit}"
        case bounds.Lt(lt=limit):
            return f"< {limit}"
        case bounds.Le(le=limit):
            return f"<= {limit}"
        case bounds.MinLen(min_length=size):
            return f"with at least {size}"
        case bounds.MaxLen(max_length=size):
            return f"with at most {size}"
        case Divides(name=name):
            return f"that divides {name}"
        case AtMost(name=name):
            return f"at most {name}"
    return ""
