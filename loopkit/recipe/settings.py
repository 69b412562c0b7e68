"""Explicit settings, such as ``--set`` gives: independent of their order, and none of them without effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from loopkit.recipe.node import Node, Origin, Path, Problem, RecipeError


@dataclass(frozen=True)
class Override:
    """One key and its value.

    Args:
        path: The key.
        node: The value: a scalar, a list or an empty map. Its origin is an object of its own, by which it is found
            again in a composed recipe.
    """

    path: Path
    node: Node

    @property
    def origin(self) -> Origin:
        """Where it was written."""
        return self.node.origin


def settings_of(layers: Iterable[Node]) -> list[Override]:
    """Return the settings of several layers, each key once.

    Raises:
        RecipeError: If two layers set one key to different values.
    """
    settings: dict[Path, Override] = {}
    problems = []
    for layer in layers:
        for setting in _flat(layer, ()):
            first = settings.setdefault(setting.path, setting)
            if _text(first.node) != _text(setting.node):
                why = f"is set twice: {_text(first.node)} by {first.origin}, {_text(setting.node)} by {setting.origin}"
                problems.append(Problem(setting.origin, setting.path, why, "keep one of them"))
    if problems:
        raise RecipeError(problems)
    return list(settings.values())


def layers_of(settings: Sequence[Override]) -> list[Node]:
    """Return the settings as layers, lowest first.

    A map is one layer, in which the order of keys has no meaning. A key that lies below another setting, as
    ``model.readout.per_loop`` lies below ``model.readout``, is laid over it.
    """
    paths = {setting.path for setting in settings}
    trees: dict[int, dict[str, Any]] = {}
    for setting in settings:
        above = sum(setting.path[:length] in paths for length in range(1, len(setting.path)))
        place = trees.setdefault(above, {})
        for key in setting.path[:-1]:
            place = place.setdefault(key, {})
        place[setting.path[-1]] = setting.node
    return [_node(trees[above]) for above in sorted(trees)]


def without_effect(settings: Sequence[Override], composed: Node) -> list[Problem]:
    """Return a problem for each setting that a composed recipe does not contain, because another one replaced it."""
    there = {id(origin) for origin in _origins(composed)}
    problems = []
    for setting in settings:
        empty = setting.node.value is None or setting.node.value == {}  # null may have removed what it names
        if id(setting.origin) in there or (empty and _at(composed, setting.path) is None):
            continue
        if setting.node.value == {} and isinstance(_at(composed, setting.path), dict):
            continue
        related = sorted(
            (other for other in settings if other is not setting),
            key=lambda other: -_shared(setting.path, other.path),
        )
        next_to = f" next to {related[0].origin}" if related else ""
        problems.append(Problem(setting.origin, setting.path, f"has no effect{next_to}", "keep one of them"))
    return problems


def _flat(node: Node, path: Path) -> Iterator[Override]:
    if isinstance(node.value, dict) and node.value:
        for key, item in node.value.items():
            yield from _flat(item, (*path, key))
    elif path:
        yield Override(path, _marked(node, replace(node.origin)))


def _marked(node: Node, origin: Origin) -> Node:
    """Return the same value, every part with this very origin."""
    if isinstance(node.value, list):
        return Node([_marked(item, origin) for item in node.value], origin)
    if isinstance(node.value, dict):
        return Node({key: _marked(item, origin) for key, item in node.value.items()}, origin)
    return Node(node.value, origin)


def _node(tree: dict[str, Any]) -> Node:
    entries = {key: _node(item) if isinstance(item, dict) else item for key, item in tree.items()}
    return Node(entries, replace(next(iter(entries.values())).origin))


def _origins(node: Node) -> Iterator[Origin]:
    yield node.origin
    if isinstance(node.value, dict | list):
        for item in node.value.values() if isinstance(node.value, dict) else node.value:
            yield from _origins(item)


def _at(node: Node, path: Path) -> Any:
    """Return the value at a path; None where there is none, or it is null."""
    for key in path:
        if not isinstance(node.value, dict) or key not in node.value:
            return None
        node = node.value[key]
    return node.value


def _shared(one: Path, other: Path) -> int:
    """Return how many keys two paths have in common from the root."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _text(node: Node) -> str:
    return json.dumps(node.plain(), sort_keys=True)[:100]
