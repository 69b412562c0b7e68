"""Names that changed between format 1 and format 2 of recipes: the only place that contains the old ones.

Values written in format 1 are translated when they are composed (``Merger``), when a saved recipe is compared
(``RecipeIdentity.completed``), when an evaluation result is read, and by ``loopkit migrate``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loopkit.recipe.node import FORMAT, Node, Origin


@dataclass(frozen=True)
class Renamed:
    """The name of an option in format 2.

    Args:
        key: Name of the option.
        values: Old value to new value, for values that were renamed.
    """

    key: str
    values: Mapping[Any, Any] = field(default_factory=dict)


OPTIONS: Mapping[tuple[str, str], Mapping[str, Renamed]] = {
    ("section", "Sections"): {"loopkit": Renamed("loopkit", {1: FORMAT})},
    ("section", "EvaluateConfig"): {
        "protocol": Renamed("protocol", {"once": "non_overlapping", "paper_a": "half_overlap"}),
        "texts": Renamed("generation"),
    },
    ("section", "LossSpikeConfig"): {"deviations": Renamed("num_std")},
    ("start", "normal"): {"cut": Renamed("truncate")},
    ("injection", "concat"): {"first": Renamed("init", {"drawn": "random"})},
    ("position", "rope"): {"pairing": Renamed("pairing", {"neighbours": "interleaved"})},
    ("supervision", "exit_improvement"): {"asks": Renamed("gate_index")},
    ("probe", "update"): {"settle": Renamed("burn_in")},
    ("optimizer", "muon"): {
        "except_for": Renamed("exclude"),
        "others": Renamed("fallback"),
        "rounds": Renamed("ns_steps"),
        "rates": Renamed("lr_scales"),
    },
}
"""Options by kind and component; the kind of a section of the recipe is ``section``."""

TYPES: Mapping[tuple[str, str], str] = {("task", "addition"): "exact_match"}
"""Components by kind and old name."""


@dataclass(frozen=True)
class Replacement:
    """One name that was replaced where a recipe is written in format 1.

    Args:
        origin: The entry.
        key: Its old key and its new one.
        value: Its old value and its new one; None if the value stays.
    """

    origin: Origin
    key: tuple[str, str]
    value: tuple[Any, Any] | None = None


def new_type(kind: str, name: Any) -> Any:
    """Return the name of a component in format 2."""
    return TYPES.get((kind, name), name) if isinstance(name, str) else name


def new_option(kind: str, name: Any, key: str, value: Any) -> tuple[str, Any]:
    """Return key and value of an option in format 2."""
    renamed = OPTIONS.get((kind, name), {}).get(key)
    if renamed is None:
        return key, value
    return renamed.key, renamed.values.get(value, value) if isinstance(value, str | int) else value


def rename_options(kind: str, name: Any, entries: Mapping[str, Node]) -> tuple[dict[str, Node], list[Replacement]]:
    """Translate the entries that are written in format 1.

    Args:
        kind: Kind of the component, or ``section``.
        name: The component, or the class of the section.
        entries: Its options as a recipe contains them.

    Returns:
        The entries in format 2, and what was replaced.
    """
    translated: dict[str, Node] = {}
    replaced = []
    for key, node in entries.items():
        if node.origin.format != FORMAT:
            new_key, value = new_option(kind, name, key, node.value)
            change = None if value is node.value else (node.value, value)
            if new_key != key or change:
                replaced.append(Replacement(node.origin, (key, new_key), change))
                key, node = new_key, replace(node, value=value)
        translated[key] = node
    return translated, replaced


def rename_type(kind: str, node: Node) -> tuple[Node, list[Replacement]]:
    """Translate the value of ``type`` if it is written in format 1."""
    value = new_type(kind, node.value) if node.origin.format != FORMAT else node.value
    if value == node.value:
        return node, []
    return replace(node, value=value), [Replacement(node.origin, ("type", "type"), (node.value, value))]


def rename_keys_of_types(kind: str, entries: Mapping[str, Node]) -> tuple[dict[str, Node], list[Replacement]]:
    """Translate the keys of a map of components that are named after their component."""
    translated: dict[str, Node] = {}
    replaced = []
    for key, node in entries.items():
        named = new_type(kind, key) if node.origin.format != FORMAT else key
        type_node = node.value.get("type") if isinstance(node.value, dict) else None
        if named != key and named not in entries and (type_node is None or type_node.value == key):
            replaced.append(Replacement(node.origin, (key, named)))
            key = named
        translated[key] = node
    return translated, replaced


def rename_plain(values: Any, kind: str, name: Any) -> Any:
    """Translate one map of a saved recipe; maps inside of it are left to the caller."""
    return dict(new_option(kind, name, key, value) for key, value in values.items())


def is_old(values: Mapping[str, Any]) -> bool:
    """Check whether saved values are written in format 1."""
    return values.get("loopkit") == 1


def hint_for(kind: str, name: str, key: str, value: Any = None) -> str:
    """Return a hint if an option, or its value, has another name since format 2; empty otherwise."""
    renamed = OPTIONS.get((kind, name), {}).get(key)
    if renamed is None or (kind, name, key) == ("section", "Sections", "loopkit"):
        return ""
    if renamed.key != key:
        return _hint(key, renamed.key)
    new = renamed.values.get(value) if isinstance(value, str) else None
    return _hint(value, new) if new else ""


def hint_for_type(kind: str, name: str) -> str:
    """Return a hint if a component has another name since format 2; empty otherwise."""
    new = new_type(kind, name)
    return _hint(name, new) if new != name else ""


def _hint(old: str, new: str) -> str:
    return f"'{old}' is called '{new}' since format 2"


def read_protocol(result: dict[str, Any]) -> dict[str, Any]:
    """Return an evaluation result whose protocol has its present name."""
    if "protocol" not in result:
        return result
    return {**result, "protocol": new_option("section", "EvaluateConfig", "protocol", result["protocol"])[1]}


def warn_of_old_files(nodes: Iterable[Node]) -> None:
    """Warn once of all files that are written in format 1."""
    files = dict.fromkeys(node.origin.file or node.origin.layer for node in nodes if node.origin.format != FORMAT)
    if files:
        names = " ".join(files)
        warnings.warn(f"format 1 of recipes is deprecated; run: loopkit migrate {names}", stacklevel=4)
