"""Settings that cannot take effect are warned of, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.recipe import Recipe, load_recipe
from loopkit.recipe.recipe import profiles_of
from loopkit.recipe.validation.warnings import ineffective
from tests.recipe.hashes import ROOT


def lines(file: Path, *texts: str, examples: int | None = None) -> list[str]:
    return list(ineffective(load_recipe(file, (), texts), examples))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("train.lr.warmup=5",), "train.lr.warmup: 5 steps reach past the end of the run, which has 4"),
        (("train.lr={type: wsd, warmup: 3, cooldown: 2}",), "train.lr: cooldown and warmup take 5 steps of a run of 4"),
        (("train.lr={type: wsd, warmup: 0.5, cooldown: 3}",), "train.lr: cooldown and warmup take 5 steps"),
        (("train.schedule={type: curriculum, of: {type: uniform, max: 4}, ramp: 9}",), "train.schedule.ramp: 9 steps"),
        (
            ("train.tokens=256", "train.lr.warmup=3"),
            "train.lr.warmup: 3 steps reach past the end of the run, which has 2",
        ),
        (("objective.regularizers.jsrr.start_step=5",), "objective.regularizers.jsrr.start_step: 5 steps"),
        (
            ("data={source: {type: addition, train: 3}, tokenizer: {type: numbers, size: 20}}",),
            "train.batch: an epoch has 3 sequences, so a step of 4 reads some of them twice",
        ),
        (
            ("objective.supervision=exit_weighted", "model.gate=linear", "train.schedule=1"),
            "objective.supervision: supervision 'exit_weighted' weighs exits",
        ),
        (("objective.regularizers.norm_penalty.weight=0",), "remove it with objective.regularizers.norm_penalty=false"),
        (
            ("train.checkpoint.best=loss", "evaluate={every: null, tasks: {perplexity: {}}}"),
            "train.checkpoint.best: the run is evaluated only at its end",
        ),
        (("train.start_weights=ema",), "train.start_weights: the run starts with initial weights"),
        (("train.start_optimizer=true",), "train.start_optimizer: the run starts with initial weights"),
        (
            ("train.ema={decay: 0.9, start: 4}",),
            "train.ema.start: averaging starts after 4 steps of a run of 4, so the average equals the weights",
        ),
    ],
)
def test_settings_without_effect_cause_a_warning(write, texts: tuple[str, ...], message: str) -> None:
    (line,) = lines(write(), *texts)
    assert message in line


def test_epoch_length_requires_data(write) -> None:
    file = write()
    assert lines(file, "train.epochs=1", "train.lr.warmup=5") == []
    assert "which has 2" in lines(file, "train.epochs=1", "train.lr.warmup=5", examples=8)[0]
    assert "an epoch has 3 sequences" in lines(file, examples=3)[0]


def test_settings_with_effect_cause_no_warning(write) -> None:
    texts = ["train.lr={type: wsd, warmup: 1, cooldown: 3}", "objective.supervision=exit_weighted", "model.gate=linear"]
    assert lines(write(), *texts, examples=4) == []


def test_validate_and_plan_warn(write) -> None:
    file = str(write())
    warmup = ["--set", "train.lr.warmup=5"]
    result = CliRunner().invoke(main, ["validate", file, *warmup])
    assert result.exit_code == 0
    assert "warning: mine: train.lr.warmup: 5 steps reach past" in result.stderr
    report = json.loads(CliRunner().invoke(main, ["validate", file, *warmup, "--json"]).stdout)
    assert report["problems"] == []
    assert len(report["cautions"]) == 1
    planned = CliRunner().invoke(main, ["plan", file, *warmup, "--flops", "1e12", "--json"])
    assert "warning: train.lr.warmup: 5 steps reach past" in planned.stderr


def test_shipped_recipes_have_no_setting_without_effect() -> None:
    files = sorted((ROOT / "recipes").glob("*.yaml"))
    report = {
        item.name: list(ineffective(item)) for file in files for item in profiles_of(file) if isinstance(item, Recipe)
    }
    assert len(report) > 100
    assert {name: message for name, message in report.items() if message} == {}
