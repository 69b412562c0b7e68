"""Every key of every recipe, misspelt or moved: exactly one problem, which names it, and nothing that only follows
from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopkit.recipe import Problem, RecipeError, load_recipe, problems_of
from loopkit.recipe.recipe import format_sections
from loopkit.registry.schema import Leaf, SectionRef, SlotMap

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPES = [file for file in sorted((ROOT / "recipes").rglob("*.yaml")) if "studies" not in file.parts]
Path_ = tuple[str, ...]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def free(path: Path_) -> bool:
    """Whether the last key of a path is the user's to choose: an entry of a free map or of a plural slot."""
    if path[0] == "profiles":
        return len(path) == 2 or free(path[2:])
    schema, annotation = format_sections()["Sections"], None
    for key in path[:-1]:
        option = schema.options.get(key) if schema else None
        annotation = option.annotation if option else None
        schema = format_sections()[annotation.name] if isinstance(annotation, SectionRef) else None
        if schema is None:
            break
    return isinstance(annotation, SlotMap | Leaf)


def keys(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every key whose value holds no key: the leaves."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict) and item:
                yield from keys(item, (*path, key))
            else:
                yield (*path, key)


def renamed(text: dict, path: Path_, name: str) -> dict:
    copy = deepcopy(text)
    node = copy
    for key in path[:-1]:
        node = node[key]
    entries = list(node.items())
    node.clear()
    node.update((name if key == path[-1] else key, value) for key, value in entries)
    return copy


def moved_up(text: dict, path: Path_) -> dict | None:
    """The key moved to the map above, unless that map has the key already."""
    copy = deepcopy(text)
    node = above = copy
    for key in path[:-1]:
        above, node = node, node[key]
    if len(path) < 2 or path[-1] in above:
        return None
    above[path[-1]] = node.pop(path[-1])
    return copy


def moved_down(text: dict, path: Path_) -> Iterator[dict]:
    """The key moved into each sibling map that does not have it."""
    node = text
    for key in path[:-1]:
        node = node[key]
    for beside, inner in node.items():
        # keys of profiles and of tied parameters are the user's to choose
        if beside not in (path[-1], "profiles", "tie") and isinstance(inner, dict) and path[-1] not in inner:
            copy = deepcopy(text)
            place = copy
            for key in path[:-1]:
                place = place[key]
            place[beside][path[-1]] = place.pop(path[-1])
            yield copy


def variants(text: dict, paths: list[Path_]) -> Iterator[tuple[str, str, dict]]:
    for path in paths:
        shown = ".".join(path)
        yield f"{shown} misspelt", path[-1] + "x", renamed(text, path, path[-1] + "x")
        yield f"{shown} renamed", "zzz", renamed(text, path, "zzz")
        if (copy := moved_up(text, path)) is not None:
            yield f"{shown} moved up", path[-1], copy
        for copy in moved_down(text, path):
            yield f"{shown} moved down", path[-1], copy


@cache
def fresh() -> dict[Path, list[Path_]]:
    """Of each recipe, the keys that no recipe before it has; the base recipes come first.

    Profiles of different names are alike, and so are entries that recipes name themselves.
    """
    seen: set[Path_] = set()
    places: dict[Path, list[Path_]] = {}
    for file in sorted(RECIPES, key=lambda file: (file.parent.name != "base", file)):
        places[file] = []
        for path in keys(yaml.load(file.read_text(), Loader=LOADER)):
            place = ("profiles", "*", *path[2:]) if path[0] == "profiles" else path
            if not free(path) and place not in seen:
                seen.add(place)
                places[file].append(path)
    return {file: paths for file, paths in places.items() if paths}


def problems(text: dict, file: Path) -> list[Problem]:
    """What is wrong with a recipe, its file unreadable or not."""
    file.write_text(yaml.dump(text, Dumper=DUMPER, sort_keys=False))
    try:
        return problems_of(file)
    except RecipeError as error:
        return error.problems


def missed(what: str, key: str, problem: Problem) -> bool:
    """Whether a key that moved into a map that takes any key is missed by name where it was."""
    return what.endswith("moved down") and key in re.findall(r"\w+", problem.message)


@pytest.mark.parametrize("recipe", fresh(), ids=lambda file: str(file.relative_to(ROOT / "recipes").with_suffix("")))
def test_renamed_or_moved_key_is_one_problem(recipe: Path, tmp_path: Path) -> None:
    # the variants extend by absolute path, so that they may lie elsewhere
    text = yaml.safe_load(recipe.read_text())
    if "extends" in text and (recipe.parent / text["extends"]).exists():
        text["extends"] = str(recipe.parent / text["extends"])
    file = tmp_path / recipe.name
    cases, wrong = 0, []
    for what, key, variant in variants(text, fresh()[recipe]):
        places = problems(variant, file)
        if "moved" in what and not places:
            continue  # the key happens to be an option of its new place, too
        cases += 1
        if len(places) != 1 or not (key in places[0].path or missed(what, key, places[0])):
            wrong.append(f"{what}: {[p.render() for p in places]}")
    assert cases >= 2 * len(fresh()[recipe])
    assert not wrong, "\n".join(wrong)


def test_keys_of_all_recipes_are_covered() -> None:
    assert sum(map(len, fresh().values())) > 150


def test_every_recipe_in_the_tree_is_valid() -> None:
    places = [problem.render() for file in RECIPES for problem in problems_of(file)]
    assert places == []
    assert len(RECIPES) >= 2
    for file in RECIPES:
        assert load_recipe(file).description, f"{file} does not say what it shows"


def test_free_keys_are_distinguished() -> None:
    assert free(("profiles", "mini"))
    assert free(("evaluate", "probes", "norms"))
    assert free(("train", "deepspeed", "x"))
    assert not free(("profiles", "mini", "train", "steps"))
    assert not free(("model", "block", "attention", "heads"))
