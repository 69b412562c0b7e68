"""A recipe's ``sweep:`` block: the points it stands for, each a checked recipe, before any of them runs. No torch."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from loopkit.plural import plural
from loopkit.recipe.identity import value_digest
from loopkit.recipe.layers import Layers, load_layers, overrides
from loopkit.recipe.merge import Merger
from loopkit.recipe.migration.renames import new_option, new_type
from loopkit.recipe.node import FORMAT, Node, Origin, Problem, RecipeError, nested, value_at
from loopkit.recipe.recipe import Recipe, compose, format_sections
from loopkit.recipe.resolve import Resolver
from loopkit.recipe.suppress import RootCauses
from loopkit.registry.catalog import catalog
from loopkit.registry.schema import Schema, SectionRef, SlotMap

MAX_POINTS = 1000
PLACE = SectionRef("SweepConfig")
Setting = tuple[str, Node]


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Args:
        name: Of its run: the recipe's name and what is particular to the point.
        values: What is particular to it, by key.
        recipe: Resolved.
        overrides: The same values as ``--set`` takes them.
    """

    name: str
    values: Mapping[str, Any]
    recipe: Recipe
    overrides: tuple[str, ...]


def load_sweep(
    recipe: str | FilePath,
    profiles: Sequence[str] = (),
    texts: Sequence[str] = (),
    *,
    plugins: Iterable[FilePath] = (),
    installed: bool = True,
) -> list[Point]:
    """Return every point of a recipe's sweep, in the order of the block, seeds innermost.

    Args:
        recipe: A path, or the name of a shipped recipe.
        profiles: As for ``load_recipe``; a profile may have a ``sweep`` of its own, laid over the recipe's.
        texts: ``--set`` arguments for all points.
        plugins: Files with further components.
        installed: Whether installed plugins count.

    Raises:
        RecipeError: With the problems of the block and of all points together.
    """
    layers = load_layers(recipe)
    overrides(texts)  # report their problems once, not at each point
    settings = _settings(layers, profiles)
    if clashes := _clashes(settings, texts):
        raise RecipeError(clashes)
    points, problems = [], []
    labels = _labels(settings)
    for chosen in settings:
        try:
            resolved = compose(layers, profiles, texts, above=_layers(chosen), plugins=plugins, installed=installed)
        except RecipeError as error:
            problems += error.problems
            continue
        changed = f"-{value_digest(list(texts))}" if texts else ""
        name = f"{resolved.name}{changed}-{'-'.join(labels[key, _as_json(node)] for key, node in chosen)}"
        named = [(present_key(key, resolved) if node.origin.format != FORMAT else key, node) for key, node in chosen]
        written = {key: _written(node.plain(), resolved.values, key) for key, node in named}
        words = tuple(f"{key}={json.dumps(value)}" for key, value in written.items())
        points.append(Point(name, {key: node.plain() for key, node in chosen}, resolved, words))
    if problems := [*problems, *_duplicates(points, settings)]:
        raise RecipeError(problems)
    return points


def _settings(layers: Layers, profiles: Sequence[str]) -> list[list[Setting]]:
    """Return the settings of each point: keys with their values."""
    block = _block(layers, profiles)
    parts: dict[str, dict[str, list[Node]]] = {"grid": {}, "zip": {}}
    for part, keys in parts.items():
        for key, values in block.value[part].value.items() if part in block.value else ():
            keys[key] = values.value
    seeds = block.value["seeds"].value if "seeds" in block.value else None
    lists = parts["grid"] | ({"seed": seeds} if seeds else {})
    if problems := [problem for key, values in lists.items() for problem in _repeated(key, values)]:
        raise RecipeError(problems)
    axes: list[list[list[Setting]]] = [[[(key, value)] for value in values] for key, values in parts["grid"].items()]
    if paired := parts["zip"]:
        lengths = {key: len(values) for key, values in paired.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise RecipeError(
                [Problem(block.value["zip"].origin, ("sweep", "zip"), f"lists differ in length: {listed}")]
            )
        axes.append([list(zip(paired, row, strict=True)) for row in zip(*paired.values(), strict=True)])
    if seeds:
        axes.append([[("seed", seed)] for seed in seeds])
    count = math.prod(map(len, axes))
    if not axes or count > MAX_POINTS:
        why = f"stands for {plural(count, 'run')}; at most {MAX_POINTS:,} are made" if axes else "varies nothing"
        raise RecipeError([Problem(block.origin, ("sweep",), why, "write grid, zip or seeds")])
    return [[setting for part in row for setting in part] for row in itertools.product(*axes)]


def _repeated(key: str, values: Sequence[Node]) -> Iterator[Problem]:
    seen: set[str] = set()
    for node in values:
        if (text := _as_json(node)) in seen:
            yield Problem(node.origin, ("sweep", key), f"{text[:80]} is named twice", "name each value once")
        seen.add(text)


def _block(layers: Layers, profiles: Sequence[str]) -> Node:
    """Return the checked ``sweep`` block, merged from parents, recipe and profiles."""
    merger = Merger(catalog(), format_sections())
    block: Node | None = None
    for layer in (*layers.bodies, *layers.chosen(profiles)):
        if (written := layer.value.get("sweep")) is not None:
            block = merger.merge(block, written, PLACE)
    if block is None or block.value is None:
        hint = "sweep: {grid: {train.lr.peak: [1e-3, 3e-3]}, seeds: [1, 2]}"
        raise RecipeError([Problem(Origin(layers.name), ("sweep",), "the recipe has no sweep", hint)])
    walk = Resolver(merger)
    walk.section("SweepConfig", block, ("sweep",), {})
    if problems := list(RootCauses(walk).problems()):
        raise RecipeError(problems)
    return block


def _clashes(settings: Sequence[Sequence[Setting]], texts: Sequence[str]) -> list[Problem]:
    """Return a problem for each key that is set twice: in the block, inside another key, or by ``--set``."""
    keys = [(key, node.origin) for key, node in settings[0]]
    overridden = [(text.partition("=")[0].strip(), Origin(f"--set {text[:100]}")) for text in texts]
    problems = []
    for number, (key, origin) in enumerate(keys):
        path = ("sweep", key[:80])
        if not all(key.split(".")) or len(key.split(".")) > 30 or key.split(".")[0] in ("extends", "profiles", "sweep"):
            problems.append(Problem(origin, path, "is not a key of a recipe", "write it as in --set: train.lr.peak"))
        for other, place in (*keys[:number], *overridden):
            if key == other or key.startswith(other + ".") or other.startswith(key + "."):
                where = f"{other} at {place}" if place.file else str(place)
                problems.append(Problem(origin, path, f"is also set by {where}", "leave one of them out"))
    return problems


def _layers(chosen: Sequence[Setting]) -> list[Node]:
    """Return the layers of one point; values keep the line on which they were written."""
    return [nested(node, key.split(".")) for key, node in chosen]


def _written(value: Any, values: Mapping[str, Any], key: str) -> Any:
    """Return a value as the recipe resolved it, so that paths are absolute."""
    resolved = value_at(values, key.split("."))
    return resolved if type(resolved) is type(value) else value


def present_key(key: str, recipe: Recipe) -> str:
    """Return a dotted key of format 1 with the names that its parts have now."""
    schema: Schema | None = format_sections()["Sections"]
    path: tuple[str, ...] = ()
    kind = ""  # of the components of a map, if the next part is the name of one
    for part in key.split("."):
        if kind:
            part, kind = new_type(kind, part), ""
        elif schema is not None:
            part, _ = new_option(schema.kind, schema.name, part, None)
        path = (*path, part)
        option = schema.options.get(part) if schema is not None else None
        annotation = option.annotation if option else None
        if isinstance(annotation, SectionRef):
            schema = format_sections()[annotation.name]
        else:
            kind = annotation.kind if isinstance(annotation, SlotMap) else ""
            schema = recipe.specs[path].schema if path in recipe.specs else None
    return ".".join(path)


def _labels(settings: Sequence[Sequence[Setting]]) -> dict[tuple[str, str], str]:
    """Return a short word for each value of each key, unique among the values of the key."""
    values: dict[str, dict[str, Any]] = {}
    for chosen in settings:
        for key, node in chosen:
            values.setdefault(key, {})[_as_json(node)] = node.plain()
    last = Counter(key.rpartition(".")[2] for key in values)
    labels = {}
    for key, values_by_text in values.items():
        parts = key.split(".")
        word = parts[-1] if last[parts[-1]] == 1 else "_".join(parts[-2:]) if len(parts) > 1 else key
        slugs = {text: _slug(value) for text, value in values_by_text.items()}
        is_unique = len(set(slugs.values())) == len(slugs)
        for text, slug in slugs.items():
            labels[key, text] = f"{word}_{slug}" if is_unique else f"{word}_{slug}_{value_digest(text)}"
    return labels


def _slug(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("type", value_digest(value)))
    if isinstance(value, list):
        return value_digest(value)
    text = value if isinstance(value, str) else json.dumps(value)
    text = FilePath(text).stem if "/" in text else text
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_.")[:24] or value_digest(value)


def _as_json(node: Node) -> str:
    return json.dumps(node.plain(), sort_keys=True)


def _duplicates(points: Sequence[Point], settings: Sequence[Sequence[Setting]]) -> Iterator[Problem]:
    """Yield a problem for each pair of points that are the same experiment."""
    first: dict[str, Point] = {}
    names = Counter(point.name for point in points)
    for point, chosen in zip(points, settings, strict=False):
        same = first.setdefault(point.recipe.hash, point)
        if same is not point:
            why = f"{_values(same)} and {_values(point)} are the same experiment"
            yield Problem(chosen[0][1].origin, ("sweep",), why, "leave one of them out")
        elif names[point.name] > 1:
            yield Problem(chosen[0][1].origin, ("sweep",), f"two points would be called {point.name}")


def _values(point: Point) -> str:
    return " ".join(f"{key}={json.dumps(value)}" for key, value in point.values.items())[:200]


def sweep_problems(
    recipe: str | FilePath, *, plugins: Iterable[FilePath] = (), installed: bool = True
) -> list[Problem]:
    """Return the problems of a recipe's sweep and of its points; empty if it has no sweep.

    Raises:
        RecipeError: If the file or a parent cannot be read at all.
    """
    if not any("sweep" in layer.value for layer in load_layers(recipe).bodies):
        return []
    try:
        load_sweep(recipe, plugins=plugins, installed=installed)
    except RecipeError as error:
        return error.problems
    return []
