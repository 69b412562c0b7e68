"""The average of the weights in training: closed form, checkpoints, resume, evaluation at the end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from loopkit.evaluation import results_of
from loopkit.evaluation.trained_run import open_run
from loopkit.runs import CheckpointProblem, RunFolder
from loopkit.runs.checkpoint import EMA, WEIGHTS
from loopkit.training.display.progress import Display
from loopkit.training.errors import Interrupted
from loopkit.training.step.engine import Engine
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


@pytest.mark.parametrize("stage", [0, 1, 2])
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
    fit(recipe(*options, *TIED, 'train.trainable=["core.*", "embedding.*", "readout.*"]'), tmp_path / "run")
    assert len(history) == 50
    expected = average_of(history, start=5, decay=0.9)
    averaged, trained = weights(tmp_path / "run", 50, EMA), weights(tmp_path / "run", 50, WEIGHTS)
    assert averaged.keys() == trained.keys()
    frozen = {name for name in trained if name not in expected or name.startswith(("position", "coda", "gate"))}
    moved = set(trained) - frozen
    assert frozen and any("alpha" in name for name in moved)
    for name in frozen:
        assert averaged[name].equal(trained[name]), name
    for name in moved:
        assert not averaged[name].equal(trained[name]), name
        assert torch.allclose(averaged[name].double(), expected[name], rtol=1e-6, atol=1e-7), name
