"""The same experiment goes on; another one is refused with the difference."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from loopkit.training.resume import OtherRecipe, check_same, differences

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
def test_length_measurements_and_words_may_change(path: str, value: Any) -> None:
    assert check_same(RECIPE, changed(path, value)) == []


@pytest.mark.parametrize(
    ("path", "value"), [("train.micro_batch", 2), ("train.deepspeed.zero_optimization", {"stage": 1})]
)
def test_the_way_of_computing_may_change_and_is_said(path: str, value: Any) -> None:
    (said,) = check_same(RECIPE, changed(path, value))
    assert path in said


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("train.lr.peak", 1e-3, "train.lr.peak: 0.0003 in the run, 0.001 now"),
        ("train.batch", 16, "train.batch: 8 in the run, 16 now"),
        ("seed", 1, "seed: 42 in the run, 1 now"),
        ("model.gate", {"type": "linear"}, r"model.gate: \(absent\) in the run"),
        ("model.carry.of", [], "model.carry.of"),
    ],
)
def test_another_experiment_is_refused_with_the_difference(path: str, value: Any, said: str) -> None:
    with pytest.raises(OtherRecipe, match=said) as refused:
        check_same(RECIPE, changed(path, value))
    assert "--name" in str(refused.value)


def test_all_differences_are_told_at_once() -> None:
    other = changed("train.lr.peak", 1.0) | {"seed": 7}
    assert set(differences(RECIPE, other)) == {("train", "lr", "peak"), ("seed",)}


def test_loops_drawn_per_micro_step_tie_the_micro_batch() -> None:
    saved = changed("train.loops_per", "micro_step")
    wanted = copy.deepcopy(saved)
    wanted["train"]["micro_batch"] = 2
    with pytest.raises(OtherRecipe, match=r"train\.micro_batch"):
        check_same(saved, wanted)
