"""Validation of one plain value in pydantic's strict JSON mode, with one message on failure."""

from __future__ import annotations

import json
import typing
from functools import cache
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.recipe.authoring.describe import describe_type
from loopkit.recipe.node import Node
from loopkit.registry.schema import Leaf


class WrongValue(UserError):
    """A value that an option does not accept."""


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def validate_value(node: Node, leaf: Leaf) -> tuple[Any, Any]:
    """Check a value.

    Args:
        node: What was written.
        leaf: What is accepted.

    Returns:
        The value as plain data, with paths made absolute, and as the Python value that constructors receive.

    Raises:
        WrongValue: With one message, whatever the number of alternatives.
    """
    if node.value == "" and mentions_path(leaf.type):  # it would be the folder itself
        raise WrongValue(_wrong("", leaf))
    plain = absolute(node, leaf.type)
    try:
        text = json.dumps(plain, allow_nan=False)
        typed = _adapter(leaf.type).validate_json(text, strict=True)
    except ValueError:
        raise WrongValue(_wrong(node.plain(), leaf)) from None
    return plain, typed


def _wrong(value: Any, leaf: Leaf) -> str:
    """Return what is wrong with a value, or with the first value of a map."""
    if isinstance(value, dict) and typing.get_origin(leaf.type) is dict:
        inner = typing.get_args(leaf.type)[1]
        for key, item in value.items():
            try:
                _adapter(inner).validate_json(json.dumps(item, allow_nan=False), strict=True)
            except ValueError:
                return f"'{key}' in it must be {describe_type(inner)}, not {_shown(item)}"
    return f"must be {describe_type(leaf.type)}, not {_shown(value)}"


def default_values(default: Any, leaf: Leaf) -> tuple[Any, Any]:
    """Return a default as plain data, and as the Python value that constructors receive."""
    text = json.dumps(default)
    return json.loads(text), _adapter(leaf.type).validate_json(text, strict=True)


def absolute(node: Node, kind: Any) -> Any:
    """Return the plain value; relative paths start at the folder of the file that contains them."""
    if isinstance(node.value, str) and mentions_path(kind) and "\0" not in node.value:
        return str((node.origin.folder / Path(node.value).expanduser()).resolve())
    if isinstance(node.value, list) and mentions_path(kind):
        return [absolute(item, kind) for item in node.value]
    if isinstance(node.value, dict) and mentions_path(kind):
        return {key: absolute(item, kind) for key, item in node.value.items()}
    return node.plain()


@cache
def mentions_path(kind: Any) -> bool:
    """Check whether a path stands anywhere in a type."""
    return kind is Path or any(mentions_path(part) for part in typing.get_args(kind) if part is not ...)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = {None: "null", True: "true", False: "false"}.get(value) if value is None or isinstance(value, bool) else None
    return text or (repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "...")
