"""Merging of recipe layers: maps merge, lists replace, and a change of type drops the inherited options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loopkit.recipe.migration.renames import Replacement, rename_keys_of_types, rename_options, rename_type
from loopkit.recipe.node import Node, Problem, RecipeError
from loopkit.registry.catalog import Catalog, ComponentError
from loopkit.registry.schema import MISSING, Annotation, Leaf, Option, Schema, SectionRef, Slot, SlotList, SlotMap


@dataclass(frozen=True)
class Merger:
    """Expands short forms and merges layers, guided by what each place accepts.

    Args:
        catalog: Where components are looked up.
        sections: The recipe format.
        replaced: Names of format 1 that were replaced in layers written in it.
    """

    catalog: Catalog
    sections: dict[str, Schema]
    replaced: list[Replacement] = field(default_factory=list)

    def schema(self, annotation: Annotation, type_name: Any) -> Schema | None:
        """Return the schema of a map at this place, or None where its type is not known."""
        if isinstance(annotation, SectionRef):
            return self.sections[annotation.name]
        if isinstance(annotation, Slot) and isinstance(type_name, str):
            try:
                return self.catalog.get(annotation.kind, type_name)
            except ComponentError:
                return None
        return None

    def merge(self, base: Node | None, over: Node, annotation: Annotation, default: Any = None) -> Node:
        """Merge the value of one layer over the value of the layers below it.

        Args:
            base: Value of the layers below, short forms expanded; None if there is none.
            over: Value of this layer, as written.
            annotation: What the option accepts.
            default: Component if neither value names one.
        """
        if isinstance(annotation, SlotMap) and isinstance(over.value, dict):
            entries = _entries(base)
            written, replaced = rename_keys_of_types(annotation.kind, over.value)
            self.replaced.extend(replaced)
            for name, node in written.items():
                entries[name] = self._entry(entries.get(name), node, Slot(annotation.kind), name)
            return Node(entries, over.origin)
        if isinstance(annotation, SlotList):
            slot = Slot(annotation.kind)
            if isinstance(over.value, list):
                return Node([self.merge(None, item, slot) for item in over.value], over.origin)
            return _indexed(base, over, lambda below, item: self.merge(below, item, slot))
        if isinstance(annotation, Slot | SectionRef):
            return self._map(base, over, annotation, default)
        return _plain(base, over)

    def _entry(self, base: Node | None, over: Node, slot: Slot, name: str) -> Node:
        if over.value is None:
            over = Node({}, over.origin)
        return over if over.value is False else self.merge(base, over, slot, name)

    def _map(self, base: Node | None, over: Node, annotation: Slot | SectionRef, default: Any) -> Node:
        entries = _entries(base)
        if isinstance(annotation, Slot) and "type" in entries:
            default = entries["type"].value
        over = self._written_out(over, annotation, default)
        if not isinstance(over.value, dict):
            return over
        over = self._in_present_format(over, annotation, default)
        if isinstance(annotation, Slot) and "type" in over.value and over.value["type"].value != default:
            entries, default = {}, over.value["type"].value
        schema = self.schema(annotation, default)
        alternatives = schema.traits.get("exactly_one", ()) if schema else ()
        if any(key in over.value and over.value[key].value is not None for key in alternatives):
            entries = {key: node for key, node in entries.items() if key not in alternatives}
        for key, node in over.value.items():
            option = schema.options.get(key) if schema else None
            below = entries.get(key)
            if schema and option is None and node.value is None and below is not None:
                del entries[key]  # null removes what a lower layer wrote and this component does not have
                continue
            entries[key] = (
                self.merge(below, node, option.annotation, default_type(option)) if option else _plain(below, node)
            )
        return Node(entries, over.origin)

    def _in_present_format(self, node: Node, annotation: Slot | SectionRef, default: Any) -> Node:
        """Return a map whose keys and values have their names of the present format."""
        entries = node.value
        kind, name = ("section", annotation.name) if isinstance(annotation, SectionRef) else (annotation.kind, default)
        if kind != "section" and "type" in entries:
            type_node, replaced = rename_type(kind, entries["type"])
            self.replaced.extend(replaced)
            entries, name = {**entries, "type": type_node}, type_node.value
        entries, replaced = rename_options(kind, name, entries)
        self.replaced.extend(replaced)
        return Node(entries, node.origin)

    def _written_out(self, node: Node, annotation: Slot | SectionRef, default: Any) -> Node:
        """Return the map that a short form stands for: a name for a component, a bare value for its first option."""
        value = node.value
        if isinstance(value, dict | list) or value is None:
            return node
        if isinstance(annotation, Slot) and isinstance(value, str):
            return Node({"type": node}, node.origin)
        schema = self.schema(annotation, default)
        words = schema.traits.get("words", {}) if schema else {}
        if isinstance(value, str) and value in words:
            return Node({key: Node(item, node.origin) for key, item in words[value].items()}, node.origin)
        if schema and schema.short and not isinstance(value, bool):
            option = schema.options[schema.short].annotation
            if not isinstance(value, str) or (isinstance(option, Leaf) and option.takes_text):
                return Node({schema.short: node}, node.origin)
        return node


def _entries(node: Node | None) -> dict[str, Node]:
    return dict(node.value) if node is not None and isinstance(node.value, dict) else {}


def _plain(base: Node | None, over: Node) -> Node:
    """Merge without a schema: free maps, and values of unknown keys."""
    if base is not None and isinstance(base.value, list):
        return _indexed(base, over, _plain)
    if base is None or not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    entries = dict(base.value)
    for key, node in over.value.items():
        entries[key] = _plain(entries.get(key), node)
    return Node(entries, over.origin)


def _indexed(base: Node | None, over: Node, merge: Callable[[Node | None, Node], Node]) -> Node:
    """Merge ``{0: ..., 2: ...}``, the form of ``--set a.0.b=c``, over the items of a list."""
    if base is None or not isinstance(base.value, list) or not isinstance(over.value, dict):
        return over
    items = list(base.value)
    for key, node in over.value.items():
        if not key.isdecimal():
            return over
        if int(key) >= len(items):
            why = f"there is no entry {key}; the list has {len(items)}, counted from 0"
            raise RecipeError([Problem(node.origin, (), why)])
        items[int(key)] = merge(items[int(key)], node)
    return Node(items, over.origin)


def default_type(option: Option) -> Any:
    """Return the component that fills a slot where a recipe names none, or None."""
    is_slot = isinstance(option.annotation, Slot)
    return option.default if is_slot and option.default is not MISSING else None
