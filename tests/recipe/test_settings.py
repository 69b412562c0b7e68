"""Explicit settings: their order has no meaning, and none is dropped in silence."""

from __future__ import annotations

import itertools

import pytest

from loopkit.recipe import RecipeError, load_recipe
from tests.recipe.conftest import BASE


@pytest.mark.parametrize(
    "texts",
    [
        ("train.lr.peak=1e-3", "train.lr.type=cosine", "train.lr.floor=0.1"),
        ("train={lr: {peak: 1e-3}}", "train.lr={floor: 0.1}", "train.lr=cosine"),
        ("model.readout.per_loop=true", "model.readout=alpha", "seed=3"),
        ("model.carry.of.1={type: clamp}", "model.carry={type: chain, of: [norm, damping]}"),
        ("objective.regularizers.again.weight=0.2", "objective.regularizers.again={type: norm_penalty}"),
        ("train.checkpoint.keep=3", "train.checkpoint=7"),
        ("train.schedule.max=5", "train.schedule={type: lognormal, mu: 1.0, sigma: 0.5}"),
    ],
)
def test_order_of_settings_is_irrelevant(write, texts: tuple[str, ...]) -> None:
    file = write()
    results = [load_recipe(file, (), order).values for order in itertools.permutations(texts)]
    assert all(values == results[0] for values in results)


def test_peak_survives_another_schedule(write) -> None:
    lr = load_recipe(write(), (), ["train.lr.peak=1e-3", "train.lr.type=cosine"]).values["train"]["lr"]
    assert (lr["type"], lr["peak"]) == ("cosine", 1e-3)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("train.lr.peek=1", "train.lr.type=cosine"), "train.lr.peek: lr 'cosine' has no option 'peek'"),
        (("seed=1", "seed=2"), "is set twice: 1 by --set seed=1, 2 by --set seed=2"),
        (("train={batch: 8}", "train.batch=4"), "is set twice"),
        (("model.readout=alpha", "model.readout.type=raw"), "has no effect next to --set model.readout"),
        (("train.schedule=3", "train.schedule={type: uniform, max: 4}"), "has no effect next to --set train.schedule"),
        (("train.checkpoint=null", "train.checkpoint.every=3"), "has no effect next to --set train.checkpoint.every=3"),
        (("objective.regularizers.x=false", "objective.regularizers.x.type=jsrr"), "has no effect next to"),
        (("train.epochs=1", "train.tokens=2"), "exclude each other"),
    ],
)
def test_contradicting_settings_are_rejected(write, texts: tuple[str, ...], message: str) -> None:
    for order in itertools.permutations(texts):
        with pytest.raises(RecipeError) as caught:
            load_recipe(write(), (), order)
        if "twice" not in message:
            assert message in str(caught.value)
        assert "--set" in str(caught.value)


def test_same_setting_twice_is_one_setting(write) -> None:
    assert load_recipe(write(), (), ["seed=3", "seed=3"]).seed == 3


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("train.clip", "must be a number > 0 or null, not ''"),
        ("train.start_from", "must be a path or null, not ''"),
        ("model.readout", "no readout is called ''"),
        ("train.checkpoint", "must be a map with the options of checkpoint"),
        ("evaluate.max_tokens", "must be an integer > 0 or null, not ''"),
        ("evaluate.tasks.perplexity", "no task is called ''"),
    ],
)
def test_empty_text_is_not_null(write, key: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(), (), [f"{key}="])
    assert message in str(caught.value)


def test_empty_text_is_a_value_of_text(write) -> None:
    assert load_recipe(write(BASE + "description: x\n"), (), ["description="]).description == ""


def test_keys_of_a_sweep_keep_their_values(write) -> None:
    from loopkit.recipe.sweep import load_sweep

    file = write(BASE + "sweep: {grid: {train.lr.peak: [0.1, 0.2], train.lr.type: [cosine, linear]}}\n")
    rates = [(point.recipe.train.lr.name, point.recipe.train.lr.options["peak"]) for point in load_sweep(file)]
    assert sorted(rates) == [("cosine", 0.1), ("cosine", 0.2), ("linear", 0.1), ("linear", 0.2)]
