"""The average of the weights (``train.ema``): closed form, checkpoints, resume, evaluation at the end."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from loopkit.evaluation import results_of
from loopkit.evaluation.evaluate_run import evaluate_run
from loopkit.evaluation.trained_run import open_run
from loopkit.runs import CheckpointProblem, RunFolder
from loopkit.runs.checkpoint import EMA, WEIGHTS
from loopkit.training.checkpointing.resume import OtherRecipe
from loopkit.training.display.progress import Display
from loopkit.training.errors import Interrupted
from loopkit.training.step.engine import Engine
from loopkit.training.step.health import Event, HealthMonitor
from loopkit.training.step.weight_average import WeightAverage
from tests.training.conftest import Maker
from tests.training.runs import assert_same_bits, fit, tensors
from tests.training.test_exact import stop_at

TIED = ("model.head=tied", "model.readout={type: alpha, s_ref: ema}")
"""A shared parameter, a scalar one, and buffers that follow the data."""


def weights(folder: Path, step: int, name: str) -> dict[str, Tensor]:
    return load_file(RunFolder(folder).checkpoint(step) / name)


def average_of(history: list[dict[str, Tensor]], start: int, decay: float) -> dict[str, Tensor]:
    """Compute the average in its closed form, in fp64: a sum over the weights after every step from ``start`` on."""
    last = len(history)
    result = {}
    for name in history[0]:
        values = [entry[name].double() for entry in history]
        total = decay ** (last - start) * values[start - 1]
        for step in range(start + 1, last + 1):
            total = total + (1 - decay) * decay ** (last - step) * values[step - 1]
        result[name] = total
    return result


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_average_has_its_closed_form(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: int
) -> None:
    """Over 50 steps; frozen parameters and buffers are those of the last step."""
    history: list[dict[str, Tensor]] = []
    real = Engine.update

    def recorded(self: Engine, lr: float) -> float | None:
        norm = real(self, lr)
        history.append({name: value.detach().clone() for name, value in self.module.model.named_parameters()})
        return norm

    monkeypatch.setattr(Engine, "update", recorded)
    zero = f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}"
    options = ("train.steps=50", "train.micro_batch=8", "train.ema={decay: 0.9, start: 0.1}", zero)
    quick = ("train.schedule={type: fixed, loops: 1}", "train.log_every=50", "train.checkpoint.every=null")
    fit(recipe(*options, *quick, *TIED, 'train.trainable=["core.*", "embedding.*", "readout.*"]'), tmp_path / "run")
    assert len(history) == 50
    expected = average_of(history, start=5, decay=0.9)
    averaged, trained = weights(tmp_path / "run", 50, EMA), weights(tmp_path / "run", 50, WEIGHTS)
    assert averaged.keys() == trained.keys()
    moved = {name for name in expected if not name.startswith("position")}
    assert {"log_s_ref", "weight"} <= {name.rpartition(".")[2] for name in set(trained) - moved}
    assert "head.weight" not in trained  # it is the embedding's
    for name in set(trained) - moved:
        assert averaged[name].equal(trained[name]), name
    for name in moved:
        assert not averaged[name].equal(trained[name]), name
        assert torch.allclose(averaged[name].double(), expected[name], rtol=1e-6, atol=1e-7), name


EMA_OPTIONS = ("train.ema={decay: 0.7, start: 2}",)


@pytest.fixture(scope="module")
def averaged_run(recipe: Maker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run with an average. Tests must not change it."""
    return fit(recipe(*EMA_OPTIONS, *TIED), tmp_path_factory.mktemp("averaged") / "whole").folder.path


@pytest.mark.parametrize("step", [1, 5])
def test_average_resumes_bitwise_exactly(
    recipe: Maker, averaged_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, Display, "log", step, signal.SIGTERM)
        with pytest.raises(Interrupted):
            fit(recipe(*EMA_OPTIONS, *TIED), tmp_path / "halves")
    fit(recipe(*EMA_OPTIONS, *TIED), tmp_path / "halves", resume=True)
    assert_same_bits(averaged_run, tmp_path / "halves", 8)
    assert any(name.startswith("ema:") for name in tensors(averaged_run, 8))


def test_average_does_not_change_training(recipe: Maker, averaged_run: Path, tmp_path: Path) -> None:
    fit(recipe(*TIED), tmp_path / "plain")
    plain, averaged = tensors(tmp_path / "plain", 8), tensors(averaged_run, 8)
    assert set(averaged) - set(plain) == {name for name in averaged if name.startswith("ema:")}
    for name, value in plain.items():
        assert value.equal(averaged[name]), name


def test_average_equals_weights_until_start(averaged_run: Path, recipe: Maker, tmp_path: Path) -> None:
    for step in (0, 3):
        same = [
            value.equal(weights(averaged_run, step, WEIGHTS)[name])
            for name, value in weights(averaged_run, step, EMA).items()
        ]
        assert all(same) is (step == 0)
    fit(recipe("train.steps=3", "train.ema={decay: 0.7, start: 1.0}"), tmp_path / "late")
    for name, value in weights(tmp_path / "late", 3, EMA).items():
        assert value.equal(weights(tmp_path / "late", 3, WEIGHTS)[name])


def test_skipped_step_adds_nothing(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[int] = []
    real = WeightAverage.update
    monkeypatch.setattr(WeightAverage, "update", lambda self, step: (updates.append(step), real(self, step))[1])
    monkeypatch.setattr(
        HealthMonitor,
        "check",
        lambda self, step, *_: Event(step, "not_finite", "skip_step", "a test", 0.0) if step == 2 else None,
    )
    fit(recipe("train.steps=3", "train.health.not_finite=skip_step", *EMA_OPTIONS), tmp_path / "run")
    assert updates == [1, 3]


def test_both_weights_are_evaluated_at_the_end(recipe: Maker, averaged_run: Path) -> None:
    folder = RunFolder(averaged_run)
    (trained,), (averaged,) = results_of(folder, 8), results_of(folder, 8, "ema")
    assert len(list(folder.evaluations.iterdir())) == 2
    record, other = json.loads(trained.read_text()), json.loads(averaged.read_text())
    assert "weights" not in record
    assert (other["weights"], other["step"]) == ("ema", 8)
    assert record["depths"] != other["depths"]
    for kind, expected in (("trained", record), ("ema", other)):
        opened = open_run(averaged_run, weights=kind)
        result, path = evaluate_run(opened, write=False)
        assert path is None
        assert result.to_json()["depths"] == expected["depths"]


def test_interrupted_evaluation_of_the_average_is_repeated(recipe: Maker, averaged_run: Path, tmp_path: Path) -> None:
    shutil.copytree(averaged_run, tmp_path / "run")
    (path,) = results_of(RunFolder(tmp_path / "run"), 8, "ema")
    text = path.read_text()
    path.unlink()
    fit(recipe(*EMA_OPTIONS, *TIED), tmp_path / "run", resume=True)
    assert path.read_text().replace('"run": "run"', '"run": "whole"') == text


def test_missing_average_is_reported(finished_run: Path) -> None:
    with pytest.raises(CheckpointProblem, match=r"contains no averaged weights.*train\.ema\.decay=0\.999"):
        open_run(finished_run, weights="ema")


def test_average_cannot_be_added_when_resuming(recipe: Maker, averaged_run: Path, tmp_path: Path) -> None:
    shutil.copytree(averaged_run, tmp_path / "run")
    with pytest.raises(OtherRecipe, match=r"train\.ema\.decay: 0\.7 in the run, 0\.8 now"):
        fit(recipe("train.ema={decay: 0.8, start: 2}", *TIED), tmp_path / "run", resume=True)


def test_weights_return_after_an_error() -> None:
    model = nn.Linear(2, 2)
    average = WeightAverage(model, decay=0.5, start=1)
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight += 1
    inside = []

    def fail() -> None:
        with average.applied():
            inside.append(model.weight.equal(before))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert inside == [True]
    assert model.weight.equal(before + 1)


@pytest.mark.parametrize(
    "zero",
    ["{stage: 2, offload_optimizer: {device: cpu}}", "{stage: 3, stage3_param_persistence_threshold: 0}"],
)
def test_average_continues_under_another_zero_stage(
    recipe: Maker, averaged_run: Path, tmp_path: Path, zero: str
) -> None:
    shutil.copytree(averaged_run, tmp_path / "moved")
    for step in (6, 8):
        shutil.rmtree(RunFolder(tmp_path / "moved").checkpoint(step))
    fit(recipe(*EMA_OPTIONS, *TIED, f"train.deepspeed={{zero_optimization: {zero}}}"), tmp_path / "moved", resume=True)
    actual, expected = weights(tmp_path / "moved", 8, EMA), weights(averaged_run, 8, EMA)
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        assert torch.allclose(value.double(), expected[name].double(), rtol=1e-3, atol=1e-5), name


def test_rewind_restores_the_average(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, the average is that of the steps of which the run consists."""
    check, update = HealthMonitor.check, WeightAverage.update
    rewound: list[int] = []
    history: dict[int, dict[str, Tensor]] = {}

    def fail_once(self: HealthMonitor, step: int, *arguments: Any) -> Event | None:
        if step == 6 and not rewound:
            rewound.append(step)
            return Event(step, "not_finite", "rewind", "a test", 0.0)
        return check(self, step, *arguments)

    def recorded(self: WeightAverage, step: int) -> None:
        update(self, step)
        assert step not in history or rewound
        history[step] = {name: value.detach().clone() for name, value in self.model.named_parameters()}

    monkeypatch.setattr(HealthMonitor, "check", fail_once)
    monkeypatch.setattr(WeightAverage, "update", recorded)
    fit(recipe("train.health.not_finite=rewind", *EMA_OPTIONS), tmp_path / "run")
    assert sorted(history) == list(range(1, 9))
    expected = average_of([history[step] for step in sorted(history)], start=2, decay=0.7)
    for name, value in weights(tmp_path / "run", 8, EMA).items():
        if name in expected:
            assert torch.allclose(value.double(), expected[name], rtol=1e-6, atol=1e-7), name
