"""The ``sweep:`` block: its points, and everything that is wrong with it, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from loopkit.recipe import RecipeError, load_recipe, problems_of
from loopkit.recipe.sweep import MAX_POINTS, load_sweep, sweep_problems
from tests.recipe.conftest import BASE

Write = Callable[..., Path]
SWEEP = """\
sweep:
  grid:
    model.readout: [norm, {type: alpha, per_loop: true}]
  zip:
    train.batch: [4, 8]
    train.steps: [8, 4]
  seeds: [1, 2]
"""


def test_each_combination_and_seed_is_a_point(write: Write) -> None:
    points = load_sweep(write(BASE + SWEEP))
    assert len(points) == 2 * 2 * 2
    assert len({point.name for point in points}) == len({point.recipe.hash for point in points}) == 8
    assert points[1].name == "mine-readout_norm-batch_4-steps_8-seed_2"
    sizes = {(point.recipe.train.batch, point.recipe.train.steps) for point in points}
    assert sizes == {(4, 8), (8, 4)}
    assert [point.recipe.seed for point in points[:2]] == [1, 2]
    assert points[-1].recipe.model.readout.options["per_loop"] is True


def test_points_equal_command_line_overrides(write: Write, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    text = BASE.replace("source: python_docs", "source: {type: text, path: a.txt}")
    file = write(text + SWEEP + "  # paths are the recipe's own\n")
    for point in load_sweep(file):
        assert load_recipe(file, (), point.overrides).hash == point.recipe.hash
    paths = write(text + "sweep: {grid: {data.source.path: [a.txt, b.txt]}}\n", "paths.yaml")
    first, second = load_sweep(paths)
    assert (first.name, second.name) == ("paths-path_a.txt", "paths-path_b.txt")
    assert first.overrides == (f'data.source.path="{tmp_path / "a.txt"}"',)


def test_sweep_changes_only_its_keys(write: Write) -> None:
    plain, swept = load_recipe(write(BASE)), load_recipe(write(BASE + SWEEP, "swept.yaml"))
    assert plain.hash == swept.hash
    assert "sweep" not in swept.values
    assert problems_of(write(BASE + SWEEP)) == []


def test_profiles_and_children_override_the_sweep(write: Write) -> None:
    write(BASE + SWEEP, "parent.yaml")
    child = write(
        "extends: parent.yaml\nsweep: {seeds: [5]}\nprofiles:\n  small: {sweep: {grid: {model.readout: [raw]}}}\n"
    )
    assert {point.recipe.seed for point in load_sweep(child)} == {5}
    assert {point.recipe.model.readout.name for point in load_sweep(child, ["small"])} == {"raw"}


def test_overrides_are_part_of_point_names(write: Write) -> None:
    file = write(BASE + SWEEP)
    plain, changed = load_sweep(file), load_sweep(file, (), ["train.lr.peak=0.5"])
    assert all(point.recipe.train.lr.options["peak"] == 0.5 for point in changed)
    assert not {point.name for point in plain} & {point.name for point in changed}


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("  seeds: [1, 2]", "  seeds: [1, 1]", "1 is named twice", 15),
        ("  seeds: [1, 2]", "  seeds: [1, x]", "must be a list, each entry an integer", 15),
        ("  seeds: [1, 2]", "  seed: [1, 2]", "did you mean 'seeds'", 15),
        ("[norm, {", "[norm, norm, {", '"norm" is named twice', 11),
        ("[norm, {", "[norm, {type: norm}, {", "are the same experiment", 11),
        ("[norm, {", "[nrom, {", "did you mean 'norm'", 11),
        ("model.readout:", "model.raedout:", "did you mean 'readout'", 11),
        ("model.readout:", "model..readout:", "is not a key of a recipe", 11),
        ("model.readout:", "sweep.grid:", "is not a key of a recipe", 11),
        ("train.steps: [8, 4]", "train.steps: [8]", "lists differ in length: train.batch has 2, train.steps has 1", 12),
        ("train.steps: [8, 4]", "train.steps: []", "with at least 1", 12),
        ("train.steps: [8, 4]", "model: [{}, {}]", "is also set by model.readout", 14),
        ("train.steps: [8, 4]", "seed: [8, 4]", "is also set by seed", 15),
    ],
)
def test_invalid_sweep_is_rejected_with_its_line(write: Write, old: str, new: str, message: str, line: int) -> None:
    assert old in SWEEP
    file = write(BASE + SWEEP.replace(old, new, 1))
    with pytest.raises(RecipeError) as caught:
        load_sweep(file)
    assert message in str(caught.value)
    assert line in {problem.origin.line for problem in caught.value.problems}
    assert sweep_problems(file) == caught.value.problems


def test_problems_of_all_points_are_reported_together(write: Write) -> None:
    file = write(BASE + "sweep: {grid: {model.readout: [rw, norm, 3], train.batch: [4, -1]}}\n")
    with pytest.raises(RecipeError) as caught:
        load_sweep(file)
    assert len(caught.value.problems) == 3


def test_swept_key_cannot_be_overridden(write: Write) -> None:
    with pytest.raises(RecipeError, match=r"sweep\.model\.readout: is also set by --set model\.readout=raw"):
        load_sweep(write(BASE + SWEEP), (), ["model.readout=raw"])
    with pytest.raises(RecipeError, match="'sweep' cannot be set with --set"):
        load_recipe(write(BASE), (), ["sweep.seeds=[1]"])


def test_missing_or_oversized_sweep_is_rejected(write: Write) -> None:
    with pytest.raises(RecipeError, match="the recipe has no sweep"):
        load_sweep(write(BASE))
    assert sweep_problems(write(BASE)) == []
    with pytest.raises(RecipeError, match="varies nothing"):
        load_sweep(write(BASE + "sweep: {}\n"))
    with pytest.raises(RecipeError, match=f"stands for 1,681 runs; at most {MAX_POINTS:,}"):
        load_sweep(write(BASE + f"sweep: {{grid: {{train.steps: {list(range(1, 42))}}}, seeds: {list(range(41))}}}\n"))
