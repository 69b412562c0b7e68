"""``migrate``: shipped recipes of format 1 become those of today, comments and order kept."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from loopkit.recipe import Recipe, load_recipe
from loopkit.recipe.layers import load_layers
from loopkit.recipe.migration.rewrite import changed_lines, migrated_text

ORIGINALS = Path(__file__).parent / "format_1"
RECIPES = Path(__file__).parents[3] / "recipes"


def shipped(name: str) -> Path:
    (file,) = RECIPES.rglob(f"{name}.yaml")
    return file


def values_anywhere(recipe: Recipe) -> str:
    """Return the values as text that does not depend on the folder of the recipe."""
    assert recipe.path is not None
    return json.dumps(recipe.values).replace(str(recipe.path.resolve().parents[1]), "")


@pytest.mark.parametrize("name", ["parcae_small", "retrofit_tinyllama", "addition"])
def test_migrated_recipes_resolve_to_those_of_today(name: str, tmp_path: Path) -> None:
    original, file = ORIGINALS / f"{name}.yaml", tmp_path / f"{name}.yaml"
    shutil.copy(original, file)
    file.write_text(migrated_text(file))
    for profiles in ((), *((profile,) for profile in load_layers(file).profiles)):
        migrated, today = load_recipe(file, profiles), load_recipe(shipped(name), profiles)
        assert values_anywhere(migrated) == values_anywhere(today)
    comments = re.compile(r"#.*")
    assert comments.findall(file.read_text()) == comments.findall(original.read_text())
    assert migrated_text(file) == file.read_text()


def test_only_the_names_change(write) -> None:  # type: ignore[no-untyped-def]
    write(name="parent.yaml")
    file = write(
        "loopkit: 1  # the format\nextends: parent.yaml\n"
        'model: {injection: add, start: {"cut": 3, type: normal}, position: {pairing: "neighbours"}}\n'
        "evaluate:\n  # texts and cut are words of this comment\n  texts:   eval\n"
        "  protocol:\n    paper_a\n"
        "sweep:\n  grid:\n    model.start.cut: [2, 3]\n    evaluate.protocol: [once, paper_a]\n",
        "old.yaml",
    )
    assert migrated_text(file) == (
        "loopkit: 2  # the format\nextends: parent.yaml\n"
        'model: {injection: add, start: {"truncate": 3, type: normal}, position: {pairing: "interleaved"}}\n'
        "evaluate:\n  # texts and cut are words of this comment\n  generation:   eval\n"
        "  protocol:\n    half_overlap\n"
        "sweep:\n  grid:\n    model.start.truncate: [2, 3]\n    evaluate.protocol: [non_overlapping, half_overlap]\n"
    )


def test_changed_lines_are_numbered() -> None:
    assert list(changed_lines("a\nb\nc\n", "a\nB\nc\n")) == [(2, "b", "B")]
