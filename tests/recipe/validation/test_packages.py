"""A missing package causes a warning during validation, and an error before a run starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.cli.doctor import TOOLS
from loopkit.recipe import load_recipe
from loopkit.recipe.validation.packages import package_cautions, require_packages
from loopkit.registry import MissingPackage
from loopkit.registry.packages import is_installed
from tests.recipe.conftest import BASE

Write = Callable[..., Path]
PLUGIN = '''
from loopkit.components.readout import Readout
from loopkit.registry import register


@register("readout", "far", packages={"no_such_module": "far-away>=2", "nor_this_one": "far-away>=2"})
class Far(Readout):
    """A readout from far away."""

    def forward(self, h, k, at):
        return h
'''
USED = "plugins: [./far.py]\ntrackers: {mine: {type: tensorboard}}\nevaluate: {tasks: {math: {}, perplexity: {}}}\n"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without any optional package."""
    monkeypatch.setattr("loopkit.registry.packages.is_installed", lambda module: False)


@pytest.fixture
def recipe_path(write: Write) -> Path:
    """A recipe with three components that need packages, one of them only in a profile."""
    write(PLUGIN, "far.py")
    return write(BASE + USED + "profiles: {far: {model: {readout: far}}}\n")


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(words), prog_name="loopkit")
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.usefixtures("bare")
def test_validate_warns_of_missing_packages(recipe_path: Path) -> None:
    lines = run("validate", str(recipe_path)).splitlines()
    assert lines == [
        "warning: evaluate.tasks.math: task 'math' needs the package math_verify, which is not installed: "
        "pip install 'loopkit[eval]', or leave it out with --set evaluate.tasks.math=false",
        "warning: trackers.mine: tracker 'tensorboard' needs the package tensorboard, which is not installed: "
        "pip install 'loopkit[track]', or leave it out with --set trackers.mine=false",
        "warning: model.readout: readout 'far' needs the packages no_such_module, nor_this_one, which are not "
        "installed: pip install 'far-away>=2'",
        "1 recipe, no problems",
    ]
    report = json.loads(run("validate", str(recipe_path), "--json"))
    assert report["problems"] == []
    assert [f"warning: {line}" for line in report["cautions"]] == lines[:3]
    assert "no_such_module" not in run("validate", str(recipe_path), "--set", "seed=3")
    assert "tracker" not in run("validate", str(recipe_path), "--set", "trackers.mine=false")


@pytest.mark.usefixtures("bare")
def test_plan_warns_of_missing_packages(recipe_path: Path) -> None:
    assert "warning: trackers.mine: tracker 'tensorboard' needs" in run("plan", str(recipe_path), "--flops", "1e12")


def test_installed_packages_cause_no_warning(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopkit.registry.packages.is_installed", lambda module: True)
    write(PLUGIN, "far.py")
    assert "warning" not in run("validate", str(write(BASE + USED)))


@pytest.mark.usefixtures("bare")
def test_run_with_missing_packages_does_not_start(recipe_path: Path) -> None:
    from loopkit.runs import RunFolder
    from loopkit.training.train import train

    recipe = load_recipe(recipe_path)
    with pytest.raises(MissingPackage, match=r"evaluate\.tasks\.math: .*pip install 'loopkit\[eval\]'"):
        train(recipe, folder=RunFolder(recipe_path.parent / "run"))
    assert not (recipe_path.parent / "run").exists()
    assert len(list(package_cautions(recipe))) == 2
    require_packages(load_recipe(recipe_path, (), ["evaluate.tasks.math=false"]), exclude=("tracker",))


def test_component_with_missing_packages_is_not_built(recipe_path: Path) -> None:
    recipe = load_recipe(recipe_path, ["far"])
    with pytest.raises(MissingPackage, match="readout 'far' needs the packages no_such_module, nor_this_one"):
        recipe.model.readout.build(width=4, max_loops=2)


def test_check_imports_nothing() -> None:
    before = set(sys.modules)
    assert is_installed("this")
    assert not is_installed("no_such_module")
    assert set(sys.modules) == before


def test_folder_is_not_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left_by_a_tracker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("left_by_a_tracker")


@pytest.mark.usefixtures("bare")
def test_show_and_doctor_name_missing_packages() -> None:
    needs = "needs: wandb; not installed: wandb; pip install 'loopkit[track]'"
    assert needs in run("show", "tracker/wandb")
    optional = json.loads(run("doctor", "--json"))["optional"]
    assert optional["math_verify"] == "not installed: pip install 'loopkit[eval]', for task/math"
    assert set(optional) == {"math_verify", "tensorboard", "wandb", "trackio", *TOOLS}
