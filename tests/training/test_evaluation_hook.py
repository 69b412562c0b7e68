"""The trial evaluation detects duplicate names of figures before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopkit.errors import UserError
from loopkit.recipe import load_recipe
from loopkit.runs import RunFolder
from loopkit.training.evaluation_hook import EvaluationHook
from tests.training.conftest import Maker, write_recipe
from tests.training.runs import assert_same_bits, fit

PROBES = '''
from loopkit.components.probe import Probe, ProbeResult
from loopkit.registry import register


@register("probe", "first")
class First(Probe):
    """Give a figure that the registration does not list."""

    name = "width"

    def run(self, model, batches, depths):
        self.depths = depths

    def result(self):
        return ProbeResult({self.name: {depth: 1.0 for depth in self.depths}})


@register("probe", "second")
class Second(First):
    """Give a figure of the same name."""


@register("probe", "third")
class Third(First):
    """Give another figure."""

    name = "height"
'''


def plugin_recipe(folder: Path, *overrides: str) -> Any:
    if not (folder / "probes.py").exists():
        (folder / "probes.py").write_text(PROBES)
        write_recipe(folder)
    return load_recipe(folder / "tiny.yaml", (), [f"plugins=[{folder}/probes.py]", *overrides])


def test_figures_of_one_name_fail_before_training(tmp_path: Path) -> None:
    recipe = plugin_recipe(tmp_path, "evaluate.probes={a: first, b: second}")
    with pytest.raises(UserError, match="a and b both define the figure 'width'; remove one of them"):
        fit(recipe, tmp_path / "run")
    assert not RunFolder(tmp_path / "run").metrics.exists() or not RunFolder(tmp_path / "run").metrics.read_text()


@pytest.mark.parametrize(
    "overrides",
    [
        ("evaluate.probes={a: first, b: third}",),
        ("evaluate.probes={a: first, b: third}", "evaluate.protocol=half_overlap"),
        ("evaluate.probes={a: first}", "evaluate.tasks={perplexity: {}}"),
    ],
)
def test_distinct_figures_train(overrides: tuple[str, ...], tmp_path: Path) -> None:
    result = fit(plugin_recipe(tmp_path, *overrides, "train.steps=1"), tmp_path / "run")
    assert len(list((result.folder.path / "eval").glob("*.json"))) == 1


def test_trial_evaluation_does_not_change_the_run(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, weights, optimizer and generators equal those of a run without the trial."""
    overrides = ("evaluate.probes={a: first, b: third}", "train.steps=2", "train.checkpoint.every=2")
    fit(plugin_recipe(tmp_path, *overrides), tmp_path / "with")
    monkeypatch.setattr(EvaluationHook, "rehearse", lambda self: None)
    fit(plugin_recipe(tmp_path, *overrides), tmp_path / "without")
    assert_same_bits(tmp_path / "with", tmp_path / "without", 2)
