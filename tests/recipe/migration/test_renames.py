"""Recipes of format 1: they are read with their old names, and old names in format 2 get a hint."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopkit.recipe import Recipe, RecipeError, load_recipe
from loopkit.recipe.migration.renames import OPTIONS, TYPES, read_protocol
from loopkit.recipe.recipe import completed_values, format_sections
from loopkit.recipe.sweep import load_sweep
from loopkit.registry.catalog import catalog

Write = Callable[..., Path]

OLD = """\
loopkit: 1
extends: {parent}
model:
  gate: linear
  start: {{type: normal, cut: 3}}
  injection: {{type: concat, first: drawn}}
  position: {{type: rope, pairing: neighbours}}
objective: {{supervision: {{type: exit_improvement, asks: before}}}}
train:
  optimizer: {{type: muon, rounds: 6, except_for: [injection.*], rates: {{head: 2.0}}, others: {{type: adamw}}}}
  health: {{loss_spike: {{deviations: 6}}}}
evaluate:
  protocol: paper_a
  texts: eval
  tasks: {{addition: {{}}}}
  probes: {{update: {{settle: 3}}}}
profiles:
  small: {{train: {{optimizer: {{rounds: 2}}}}, evaluate: {{tasks: {{addition: false, mine: {{type: addition}}}}}}}}
"""

NEW = {
    "model.start.truncate": 3.0,
    "model.injection.init": "random",
    "model.position.pairing": "interleaved",
    "objective.supervision.gate_index": "before",
    "train.optimizer.ns_steps": 6,
    "train.optimizer.exclude": ["injection.*"],
    "train.optimizer.lr_scales": {"head": 2.0},
    "train.optimizer.fallback.type": "adamw",
    "train.health.loss_spike.num_std": 6.0,
    "evaluate.protocol": "half_overlap",
    "evaluate.generation": "eval",
    "evaluate.tasks.exact_match.type": "exact_match",
    "evaluate.probes.update.burn_in": 3,
    "loopkit": 2,
}


@pytest.fixture
def old(write: Write) -> Path:
    return write(OLD.format(parent=write(name="parent.yaml").name), "old.yaml")


def value_at(recipe: Recipe, key: str) -> Any:
    value: Any = recipe.values
    for part in key.split("."):
        value = value[part]
    return value


def test_format_1_is_read_with_one_warning(old: Path) -> None:
    with pytest.warns(UserWarning, match=r"loopkit migrate \S*old\.yaml$") as caught:
        recipe = load_recipe(old)
    assert len(caught) == 1
    assert {key: value_at(recipe, key) for key in NEW} == NEW
    assert "addition" not in recipe.values["evaluate"]["tasks"]


def test_profiles_inherit_the_format_of_their_file(old: Path) -> None:
    with pytest.warns(UserWarning, match="loopkit migrate"):
        recipe = load_recipe(old, ["small"])
    assert value_at(recipe, "train.optimizer.ns_steps") == 2
    assert recipe.values["evaluate"]["tasks"] == {"mine": {"type": "exact_match"}}


def test_saved_recipes_are_read_without_warning(old: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_recipe(old, saved=True)


def test_saved_format_1_values_keep_their_hash(old: Path) -> None:
    recipe = load_recipe(old, saved=True)
    saved = old_names(json.loads(json.dumps(recipe.values)))
    assert saved["train"]["optimizer"]["rounds"] == 6
    assert recipe.is_recipe_of(saved)
    assert completed_values(saved) == recipe.values
    saved["train"]["optimizer"]["rounds"] = 7
    assert not recipe.is_recipe_of(saved)


def old_names(values: dict[str, Any]) -> dict[str, Any]:
    """Rename the values of a resolved recipe as format 1 would have saved them."""
    sections = {"Sections": (), "EvaluateConfig": ("evaluate",), "LossSpikeConfig": ("train", "health", "loss_spike")}
    places = {
        "start": ("model", "start"),
        "injection": ("model", "injection"),
        "position": ("model", "position"),
        "supervision": ("objective", "supervision"),
        "optimizer": ("train", "optimizer"),
        "probe": ("evaluate", "probes", "update"),
    }
    for (kind, name), options in OPTIONS.items():
        place: Any = values
        for part in sections[name] if kind == "section" else places[kind]:
            place = place[part]
        for old_key, renamed in options.items():
            old_values = {new: old for old, new in renamed.values.items()}
            value = place.pop(renamed.key)
            place[old_key] = old_values.get(value, value) if isinstance(value, str | int) else value
    tasks = values["evaluate"]["tasks"]
    tasks["addition"] = tasks.pop("exact_match")
    tasks["addition"]["type"] = "addition"
    return values


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("model={injection: add, start: {type: normal, cut: 3}}", "'cut' is called 'truncate' since format 2"),
        ("train.optimizer={type: muon, others: {}}", "'others' is called 'fallback' since format 2"),
        ("train.health.loss_spike={deviations: 6}", "'deviations' is called 'num_std' since format 2"),
        ("evaluate.texts=eval", "'texts' is called 'generation' since format 2"),
        ("evaluate.protocol=paper_a", "'paper_a' is called 'half_overlap' since format 2"),
        ("model.position.pairing=neighbours", "'neighbours' is called 'interleaved' since format 2"),
        ("evaluate.tasks={addition: {}}", "'addition' is called 'exact_match' since format 2"),
    ],
)
def test_old_name_is_one_problem_with_hint(write: Write, setting: str, hint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(), (), [setting])
    assert [problem.hint for problem in caught.value.problems] == [hint]


def test_sweeps_of_format_1_use_present_keys(old: Path) -> None:
    old.write_text(old.read_text() + "sweep: {grid: {train.optimizer.rounds: [3, 4], evaluate.protocol: [once]}}\n")
    with pytest.warns(UserWarning, match="loopkit migrate"):
        points = load_sweep(old)
    assert [value_at(point.recipe, "train.optimizer.ns_steps") for point in points] == [3, 4]
    assert points[0].overrides == ("train.optimizer.ns_steps=3", 'evaluate.protocol="non_overlapping"')


def test_every_rename_names_an_existing_option() -> None:
    for (kind, name), options in OPTIONS.items():
        schema = format_sections()[name] if kind == "section" else catalog().get(kind, name)
        assert {renamed.key for renamed in options.values()} <= schema.options.keys()
        assert not {key for key, renamed in options.items() if renamed.key != key} & schema.options.keys()
    for (kind, old_name), new_name in TYPES.items():
        assert new_name in catalog().names(kind)
        assert old_name not in catalog().names(kind)


def test_results_of_format_1_have_the_present_protocol() -> None:
    assert read_protocol({"protocol": "once", "step": 3}) == {"protocol": "non_overlapping", "step": 3}
    assert read_protocol({"protocol": "half_overlap"}) == {"protocol": "half_overlap"}
    assert read_protocol({"step": 3}) == {"step": 3}
