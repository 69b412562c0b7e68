"""Rewrite a recipe of format 1 in format 2; comments, order and layout stay."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from loopkit.errors import file_errors
from loopkit.recipe.layers import Layers, load_layers
from loopkit.recipe.merge import Merger
from loopkit.recipe.migration.renames import Replacement
from loopkit.recipe.node import FORMAT, Node, Problem, RecipeError, nested
from loopkit.recipe.recipe import ROOT, compose, format_sections, with_plugins
from loopkit.recipe.sweep import present_key
from loopkit.registry.catalog import catalog

_SPACE = r"(?:\s|#[^\n]*\n)*"
"""White space and comments between a key and its value."""


def migrated_text(file: Path) -> str:
    """Return the text of a recipe file in format 2; the same text if it is in that format already.

    Raises:
        RecipeError: If the file or a parent cannot be read, or a name cannot be replaced without changing the layout.
    """
    layers = load_layers(file)
    with file_errors(file, "read"):
        text = file.read_bytes().decode("utf-8-sig")
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|[\n\r\x85\u2028\u2029]", text))]
    own = layers.bodies[-1].origin.file
    changes = {
        (change.origin.line, change.origin.column, change.key[0]): change
        for change in _replacements(layers)
        if change.origin.file == own and change.origin.format != FORMAT
    }
    for (line, column, _), change in sorted(changes.items(), reverse=True):
        place = starts[line - 1] + column
        text = text[:place] + _rewritten(text[place:], change)
    return text


def _replacements(layers: Layers) -> Iterator[Replacement]:
    """Yield what must be replaced in the layers: bodies, each profile, sweeps."""
    stack = [*layers.bodies, *(part for parts in layers.profiles.values() for part in parts)]
    merger = Merger(with_plugins(stack, catalog(), ()), format_sections())
    composed: Node | None = None
    for body in layers.bodies:
        composed = merger.merge(composed, body, ROOT)
    for parts in layers.profiles.values():
        scaled = composed
        for part in parts:
            scaled = merger.merge(scaled, part, ROOT)
    yield from merger.replaced
    for layer in stack:
        for key, values in _swept(layer):
            yield from _swept_replacements(layers, key, values)


def _swept(layer: Node) -> Iterator[tuple[str, Node]]:
    """Yield the keys that a layer sweeps, with their lists of values."""
    sweep = layer.value.get("sweep")
    for part in ("grid", "zip"):
        keys = sweep.value.get(part) if sweep is not None and isinstance(sweep.value, dict) else None
        if keys is not None and isinstance(keys.value, dict):
            yield from keys.value.items()


def _swept_replacements(layers: Layers, key: str, values: Node) -> Iterator[Replacement]:
    """Yield what must be replaced in one key of a sweep and in its values."""
    if values.origin.format == FORMAT or not isinstance(values.value, list):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            recipe = compose(layers)
    except RecipeError:  # the recipe is incomplete without a profile or a child
        return
    new = present_key(key, recipe)
    if new != key:
        yield Replacement(values.origin, (key, new))
    merger = Merger(catalog(), format_sections())
    for item in values.value:
        node = nested(item, key.split("."))
        composed: Node | None = None
        for layer in (*layers.bodies, node):
            merger.replaced.clear()
            composed = merger.merge(composed, layer, ROOT)
        for change in merger.replaced:
            if change.value is not None:
                yield Replacement(item.origin, ("", ""), change.value)


def _rewritten(text: str, change: Replacement) -> str:
    """Replace the key and the value that stand at the start of a text."""
    old_key, new_key = change.key
    pattern = rf"(?P<key>(?P<quote>[\"']?){re.escape(old_key)}(?P=quote){_SPACE}:{_SPACE})" if old_key else "(?P<key>)"
    if change.value is not None:
        pattern += rf"(?P<mark>[\"']?){re.escape(str(change.value[0]))}(?P=mark)"
    match = re.match(pattern, text)
    if match is None:
        why = f"cannot be replaced by '{new_key or change.value}' automatically"
        raise RecipeError([Problem(change.origin, (), f"'{old_key}' {why}", "rename it by hand")])
    replaced = match["key"].replace(old_key, new_key, 1)
    if change.value is not None:
        replaced += f"{match['mark']}{change.value[1]}{match['mark']}"
    return replaced + text[match.end() :]


def changed_lines(before: str, after: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each line that changes, the line before and the line after."""
    for number, (old, new) in enumerate(zip(before.splitlines(), after.splitlines(), strict=True), start=1):
        if old != new:
            yield number, old, new
