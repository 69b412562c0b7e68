"""A recipe keeps its identity as loopkit grows: hashes, resuming and studies do not notice an option added later."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopkit.recipe import Recipe, load_recipe
from loopkit.recipe import format as recipe_format
from loopkit.recipe import recipe as recipe_module
from loopkit.recipe.difference import differences
from loopkit.recipe.recipe import completed_values, format_sections
from loopkit.registry.catalog import Catalog
from loopkit.registry.kinds import KINDS
from loopkit.registry.schema import Leaf, Option, Schema
from loopkit.runs import RunFolder
from loopkit.runs.resolved import is_run_of, run_named_before
from loopkit.training.checkpointing.resume import check_same
from tests.recipe.hashes import TABLE, hashes

LATER = "added_later"
EVERY_KIND = """\
loopkit: 2
data: {source: python_docs, tokenizer: bytes, length: 32}
model:
  width: 32
  block: {attention: {heads: 2}, mlp: swiglu, placement: deepnorm}
  prelude: {layers: 1, norm: layernorm}
  core: 2
  start: {type: normal}
  injection: concat
  carry: {type: chain, of: [norm, damping]}
  readout: {type: alpha, per_loop: true}
  gate: linear
  init: {type: scaled}
objective: {supervision: {type: exit_weighted}, regularizers: {jsrr: {weight: 0.1}, again: {type: norm_penalty}}}
train: {steps: 4, batch: 4, schedule: {type: curriculum, of: {type: uniform, max: 4}}, lr: {type: wsd}}
evaluate: {tasks: {perplexity: {}}, probes: {norms: {}, mine: {type: update}}}
trackers: {tensorboard: {}}
"""


def test_hashes_of_shipped_recipes_are_pinned() -> None:
    """An option that joins the format or a component must not move one; see ``tests/recipe/hashes.py``."""
    assert hashes() == json.loads(TABLE.read_text())


@pytest.fixture
def before(write) -> Recipe:
    """A recipe that uses components of every kind which a recipe can name, resolved before anything was added."""
    recipe = load_recipe(write(EVERY_KIND, "every.yaml"))
    assert {spec.kind for spec in recipe.specs.values()} == set(KINDS) - {"exit"}
    return recipe


@pytest.fixture
def grown(before: Recipe, write, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The same file, resolved when every section and every component has one option more."""
    sections = {name: _grown(schema) for name, schema in format_sections().items()}
    for name in sections:
        monkeypatch.setattr(recipe_format, name, _without_later(getattr(recipe_format, name)))
    monkeypatch.setattr(recipe_module, "format_sections", lambda: sections)
    get = Catalog.get
    monkeypatch.setattr(Catalog, "get", lambda self, kind, name: _grown(get(self, kind, name)))
    return load_recipe(write(EVERY_KIND, "every.yaml"))


def _grown(schema: Schema) -> Schema:
    return replace(schema, options={**schema.options, LATER: Option(LATER, Leaf(int, "int"), 7)})


def _without_later(section: Any) -> Any:
    return lambda **typed: section(**{key: value for key, value in typed.items() if key != LATER})


def _places(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(values, Mapping):
        for key, item in values.items():
            yield from ((*path, key),) if key == LATER else _places(item, (*path, key))
    elif isinstance(values, list):
        for number, item in enumerate(values):
            yield from _places(item, (*path, str(number)))


def test_new_option_keeps_identity(before: Recipe, grown: Recipe) -> None:
    places = set(_places(grown.values))
    assert len(places) > 40
    assert {("train", LATER), ("model", "carry", "of", "1", LATER), ("trackers", "tensorboard", LATER)} <= places
    assert grown.hash == before.hash
    assert grown.is_recipe_of(before.values)
    completed = grown.identity.completed(before.values)
    assert completed == grown.values
    assert check_same(completed, grown.values) == []
    assert completed_values(before.values) == grown.values


def test_new_option_may_have_a_former_value(before: Recipe, write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that names what older runs did is the recipe of those runs, and its default is not."""
    get = Catalog.get

    def grown(self: Catalog, kind: str, name: str) -> Schema:
        schema = get(self, kind, name)
        if (kind, name) != ("carry", "damping"):
            return schema
        return replace(_grown(schema), traits={**schema.traits, "before": {LATER: 3}})

    monkeypatch.setattr(Catalog, "get", grown)
    file = write(EVERY_KIND, "every.yaml")
    past, default = load_recipe(file, (), [f"model.carry.of.1.{LATER}=3"]), load_recipe(file)
    assert past.is_recipe_of(before.values)
    assert not default.is_recipe_of(before.values)
    assert check_same(past.identity.completed(before.values), past.values) == []
    saved = write(before.to_yaml(), "resolved.yaml")
    assert load_recipe(saved, saved=True).values == past.values
    assert load_recipe(saved).values == default.values


def test_new_option_counts_when_set(before: Recipe, grown: Recipe) -> None:
    changed = json.loads(json.dumps(grown.values))
    changed["model"]["readout"][LATER] = 8
    assert not grown.is_recipe_of(changed)
    assert {change.path for change in differences(grown.values, changed)} == {("model", "readout", LATER)}


def test_older_run_is_the_same_run(before: Recipe, grown: Recipe, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.resolved.write_text(before.to_yaml())
    folder.provenance.write_text(json.dumps({"recipe_hash": "made another way"}))
    assert is_run_of(folder, grown)
    other = json.loads(json.dumps(before.values)) | {"seed": 7}
    folder.resolved.write_text(json.dumps(other))
    assert not is_run_of(folder, grown)
    folder.resolved.unlink()
    assert not is_run_of(folder, grown)


def test_run_is_located_by_older_hash(before: Recipe, grown: Recipe, tmp_path: Path) -> None:
    for name, seed in (("every-0123abcd", before.seed), ("every-4567abcd", 7), ("every-mini", before.seed)):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        folder.resolved.write_text(json.dumps(dict(before.values) | {"seed": seed}))
    run = run_named_before(tmp_path, grown)
    assert run is not None
    assert run.name == "every-0123abcd"
    RunFolder(tmp_path / "every-0123abcd").resolved.write_text("- broken")
    assert run_named_before(tmp_path, grown) is None


def test_hash_depends_on_values_and_not_notation(write) -> None:
    file = write(EVERY_KIND)
    plain = load_recipe(file)
    same = [
        "train.clip=1",
        "model.head=tied",
        "model.block.norm=rmsnorm",
        "description=Other words.",
        "train.health={}",
    ]
    assert load_recipe(file, (), same).hash == plain.hash
    other_settings = [
        "train.clip=2",
        "model.head=untied",
        "model.block.norm=layernorm",
        "seed=1",
        "train.health.max_skips=3",
    ]
    assert len({plain.hash, *(load_recipe(file, (), [text]).hash for text in other_settings)}) == 1 + len(
        other_settings
    )
