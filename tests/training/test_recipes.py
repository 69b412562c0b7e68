"""Every shipped recipe trains two steps at tiny size and writes the files of a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from loopkit.recipe import Recipe, load_recipe
from loopkit.runs import RunFolder, read_metrics
from tests.overriding import latest
from tests.training.runs import fit, tensors

NAMES = ("huginn_3b5", "parcae_small", "parcae_small_ramp", "ouro_scratch", "retrofit_tinyllama")
SMALL = ("train.steps=2", "evaluate.every=null", "evaluate.max_tokens=500", "evaluate.depths=1-2", "train.device=cpu")


def small(root: Path, name: str, *overrides: str) -> Recipe:
    return load_recipe(root / "recipes" / f"{name}.yaml", ("smoke",), latest(*SMALL, *overrides))


def finite(folder: Path) -> None:
    records = read_metrics(RunFolder(folder).metrics)
    assert [line["step"] for line in records] == [1, 2]
    for line in records:
        assert math.isfinite(line["loss"])
        assert line["grad_norm"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_smoke_profile_trains(root: Path, tmp_path: Path, name: str) -> None:
    trained = fit(small(root, name), tmp_path / "run")
    assert trained.step == 2
    finite(tmp_path / "run")
    assert len(list((tmp_path / "run" / "eval").iterdir())) == 1


def test_second_stage_of_ouro_trains_only_the_gate(root: Path, tmp_path: Path) -> None:
    fit(small(root, "ouro_scratch"), tmp_path / "first")
    fit(small(root, "ouro_scratch_gate", f"train.start_from={tmp_path / 'first'}"), tmp_path / "second")
    finite(tmp_path / "second")
    before, after = tensors(tmp_path / "first", 2), tensors(tmp_path / "second", 2)
    changed = {name for name in after if name.startswith("weights:") and not after[name].equal(before[name])}
    assert changed == {"weights:gate.linear.weight", "weights:gate.linear.bias"}


@pytest.mark.parametrize("name", [*NAMES, "ouro_scratch_gate"])
def test_recipes_name_their_source(root: Path, name: str) -> None:
    for profiles in ((), ("mini",), ("smoke",)):
        recipe = load_recipe(root / "recipes" / f"{name}.yaml", profiles)
        assert recipe.paper.startswith("arXiv:")
        assert recipe.description
        assert recipe.seed > 0


def test_second_stage_without_the_first_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train\.start_from: .* does not exist; give a run"):
        fit(small(root, "ouro_scratch_gate", f"train.start_from={tmp_path / 'none'}"), tmp_path / "run")
