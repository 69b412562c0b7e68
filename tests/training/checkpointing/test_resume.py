"""Resume accepts the same experiment and refuses another one with the differences."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from loopkit.recipe import Recipe, load_recipe
from loopkit.recipe.difference import differences
from loopkit.runs import RunFolder
from loopkit.training.checkpointing.resume import OtherRecipe, check_same
from tests.training.runs import fit

RECIPE: dict[str, Any] = {
    "seed": 42,
    "description": "",
    "model": {"width": 64, "carry": {"type": "chain", "of": [{"type": "norm"}]}},
    "train": {"steps": 10, "epochs": None, "lr": {"type": "constant", "peak": 3e-4}, "batch": 8, "micro_batch": 4}
    | {"loops_per": "step", "deepspeed": {}, "checkpoint": {"every": 5, "keep": 2}},
    "evaluate": {"every": 5},
    "trackers": {},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    other = copy.deepcopy(RECIPE)
    *parents, last = path.split(".")
    node = other
    for key in parents:
        node = node[key]
    node[last] = value
    return other


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("train.steps", 20),
        ("train.epochs", 1.0),
        ("train.checkpoint.every", 1),
        ("evaluate.every", None),
        ("evaluate.probes", {"norms": {"type": "norms"}}),
        ("trackers.wandb", {"type": "wandb"}),
        ("description", "more"),
    ],
)
def test_length_evaluation_and_description_may_change(path: str, value: Any) -> None:
    assert check_same(RECIPE, changed(path, value)) == []


@pytest.mark.parametrize(
    ("path", "value"), [("train.micro_batch", 2), ("train.deepspeed.zero_optimization", {"stage": 1})]
)
def test_changed_computation_settings_are_reported(path: str, value: Any) -> None:
    (message,) = check_same(RECIPE, changed(path, value))
    assert path in message


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("train.lr.peak", 1e-3, "train.lr.peak: 0.0003 in the run, 0.001 now"),
        ("train.batch", 16, "train.batch: 8 in the run, 16 now"),
        ("seed", 1, "seed: 42 in the run, 1 now"),
        ("model.gate", {"type": "linear"}, r"model.gate: \(absent\) in the run"),
        ("model.carry.of", [], "model.carry.of"),
    ],
)
def test_other_experiment_is_refused_with_the_difference(path: str, value: Any, message: str) -> None:
    with pytest.raises(OtherRecipe, match=message) as refused:
        check_same(RECIPE, changed(path, value))
    assert "--name" in str(refused.value)


def test_all_differences_are_listed() -> None:
    other = changed("train.lr.peak", 1.0) | {"seed": 7}
    assert {change.path for change in differences(RECIPE, other)} == {("train", "lr", "peak"), ("seed",)}


def test_loops_per_micro_step_fix_the_micro_batch() -> None:
    saved = changed("train.loops_per", "micro_step")
    current = copy.deepcopy(saved)
    current["train"]["micro_batch"] = 2
    with pytest.raises(OtherRecipe, match=r"train\.micro_batch"):
        check_same(saved, current)


PLUGIN = """
from torch import Tensor

from loopkit.components.readout import RawReadout
from loopkit.registry import register


@register("readout", "own")
class Own(RawReadout):
    \"\"\"The state itself.\"\"\"

    def __init__(self) -> None:
        super().__init__()
"""


def test_changed_plugin_file_prevents_resume(recipe_file: Path, tmp_path: Path) -> None:
    """The option that accepts it permits the resume. The run contains the plugin file of each half."""
    plugin = tmp_path / "own.py"
    plugin.write_text(PLUGIN)

    def resolved(steps: int) -> Recipe:
        overrides = ["model.readout=own", f"train.steps={steps}", "evaluate.tasks.perplexity=false"]
        return load_recipe(recipe_file, (), overrides, plugins=[plugin])

    fit(resolved(1), tmp_path / "run")
    plugin.write_text(PLUGIN + "# changed\n")
    with pytest.raises(OtherRecipe, match=r"readout own: trained with .*\n.*--accept-changed-plugins"):
        fit(resolved(2), tmp_path / "run", resume=True)
    plugin.write_text(PLUGIN)
    fit(resolved(2), tmp_path / "run", resume=True)
    plugin.write_text(PLUGIN + "# changed\n")
    fit(resolved(3), tmp_path / "run", resume=True, accept_changed_plugins=True)
    fit(resolved(4), tmp_path / "run", resume=True)  # the changed file wrote the newest checkpoint
    sources = sorted(path.read_text() for path in RunFolder(tmp_path / "run").plugins.iterdir())
    assert sources == sorted([PLUGIN, PLUGIN + "# changed\n"])
