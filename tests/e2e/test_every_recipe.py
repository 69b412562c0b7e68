"""Every shipped recipe is trained for two steps, evaluated, audited and planned through the command line.

Recipes whose resolved values are equal at ``smoke`` are one run: those of 44M and 129M parameters differ in size alone,
which the profile sets. Recipes whose components all occur in others run in CI alone.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from loopkit.recipe import load_recipe, shipped_recipes
from tests.e2e.commands import TINY, metrics, no_plots, read, run, settings

pytestmark = pytest.mark.e2e

WORDS = ("description", "paper", "extends", "profiles")
"""Values that change nothing about a run."""
FIRST = {"ouro_scratch_gate": "ouro_scratch"}
"""A recipe that starts from the weights of another one's run, and that one."""


def groups() -> tuple[list[tuple[str, ...]], dict[str, set[str]]]:
    """The shipped recipes, those together that are the same run at ``smoke``, and the components of each run."""
    names: dict[str, tuple[str, ...]] = {}
    components: dict[str, set[str]] = {}
    for name in shipped_recipes(plugins=False):
        recipe = load_recipe(name, ("smoke",), TINY, installed=False)
        key = json.dumps({key: value for key, value in recipe.values.items() if key not in WORDS}, default=str)
        names[key] = (*names.get(key, ()), name)
        components[names[key][0]] = {f"{spec.kind}/{spec.name}" for spec in recipe.specs.values()}
    return list(names.values()), components


def covering(components: dict[str, set[str]]) -> set[str]:
    """A few of the runs that have every component among them, chosen greedily."""
    missing, chosen = set().union(*components.values()), set()
    while missing:
        best = max(components, key=lambda name: len(components[name] & missing))
        missing -= components[best]
        chosen.add(best)
    return chosen


GROUPS, COMPONENTS = groups()
COVERING = covering(COMPONENTS)
NAMES = [names[0] if names[0] in COVERING else pytest.param(names[0], marks=pytest.mark.ci) for names in GROUPS]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def train(name: str, runs: Path) -> tuple[list[str], Path]:
    """Train a recipe once, and what it starts from before it; the recipe's words on a command line, and the run."""
    values = list(TINY)
    if name in FIRST:
        values.append(f"train.start_from={train(FIRST[name], runs)[1]}")
    words = [name, "--no-plugins", "--profile", "smoke", *settings(*values)]
    if not (runs / name).exists():
        with no_plots():  # the evaluation that follows renders them
            run("train", *words, "--runs", runs, "--name", name)
    return words, runs / name


@pytest.mark.parametrize("name", NAMES)
def test_recipe_trains_and_is_measured(name: str, runs: Path) -> None:
    words, folder = train(name, runs)
    lines = metrics(folder)
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert math.isfinite(line["loss"])
        assert line["grad_norm"] > 0
    rows = read("eval", folder, "--depths", "1-3")["depths"]
    assert [row["depth"] for row in rows] == [1, 2, 3]
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert read("audit", *words)["scale"]["verdict"]
    assert read("audit", folder)["scale"]["verdict"]
    planned = read("plan", *words, "--data")
    trained = json.loads((folder / "provenance.json").read_text())
    assert planned["parameters"]["unique"] == trained["parameters"]["unique"]
    assert planned["steps"] == 2


def test_recipes_of_one_run_differ_in_size_alone() -> None:
    together = [names for names in GROUPS if len(names) > 1]
    assert all({name.replace("129m", "44m") for name in names} == {names[-1]} for names in together)
    assert sum(map(len, GROUPS)) == len(shipped_recipes(plugins=False))
