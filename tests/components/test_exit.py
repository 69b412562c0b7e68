"""Exits, by hand on two tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.exit import (
    Depth,
    Entropy,
    Exit,
    GateCdf,
    Kl,
    LogitMargin,
    MaxProb,
    StateDelta,
    sequence_score,
)
from loopkit.loop import PAD, Batch
from loopkit.recipe import component
from loopkit.registry.catalog import builtin_offers

INF = math.inf
BATCH = Batch.of(torch.zeros(1, 2, dtype=torch.int64))


@dataclass
class Pass:
    """A pass of one sequence of two tokens, whose readings are given; asking for another loop is a KeyError."""

    probabilities: dict[int, Any] = field(default_factory=dict)
    gates: dict[int, Any] = field(default_factory=dict)
    states: dict[int, Any] = field(default_factory=dict)
    shift: float = 0.0
    batch: Batch = BATCH

    def logits(self, k: int) -> Tensor:
        return torch.tensor([self.probabilities[k]]).log() + self.shift  # a shift of all logits changes no prediction

    def gate(self, k: int) -> Tensor:
        return torch.tensor([self.gates[k]])

    def state(self, k: int) -> Tensor:
        return torch.tensor([self.states[k]])


def score(exit: Exit, k: int, **tensors: Any) -> list[float]:
    result = exit.score(Pass(**tensors), k)  # type: ignore[arg-type]
    assert result.shape == (1, 2)
    assert result.dtype == torch.float32
    return result[0].tolist()


def test_depth_is_the_number_of_loops() -> None:
    assert score(Depth(), 3) == [3, 3]
    assert Depth(loops=2).threshold == 2


@pytest.mark.parametrize("shift", [0.0, 7.0])
def test_margin_is_log_ratio_of_top_two(shift: float) -> None:
    tensors = {1: [[0.1, 0.3, 0.6], [0.25, 0.5, 0.25]]}
    assert score(LogitMargin(), 1, probabilities=tensors, shift=shift) == pytest.approx([math.log(2)] * 2, rel=1e-5)


@pytest.mark.parametrize("shift", [0.0, -7.0])
def test_max_prob_is_highest_probability(shift: float) -> None:
    tensors = {2: [[0.1, 0.3, 0.6], [0.25, 0.5, 0.25]]}
    assert score(MaxProb(), 2, probabilities=tensors, shift=shift) == pytest.approx([0.6, 0.5], rel=1e-5)


def test_entropy_is_negative_and_zero_when_certain() -> None:
    tensors = {1: [[0.5, 0.5, 1e-30], [1.0, 1e-30, 1e-30]]}
    assert score(Entropy(), 1, probabilities=tensors) == pytest.approx([-math.log(2), 0.0], abs=1e-6)


def test_gate_cdf_is_probability_of_having_stopped() -> None:
    logit = [[0.0, math.log(3)], [math.log(1 / 3), -100.0], [100.0, 0.0]]  # sigmoids 1/2 3/4, 1/4 0, 1 1/2
    gates = dict(enumerate(logit, start=1))
    assert score(GateCdf(), 1, gates=gates) == pytest.approx([0.5, 0.75])
    assert score(GateCdf(), 2, gates=gates) == pytest.approx([1 - 1 / 2 * 3 / 4, 0.75])
    assert score(GateCdf(), 3, gates=gates) == pytest.approx([1.0, 1 - 1 / 4 * 1 / 2])


def test_gate_cdf_keeps_the_smallest_probabilities() -> None:
    assert score(GateCdf(), 1, gates={1: [-30.0, -30.0]}) == pytest.approx([math.exp(-30)] * 2, rel=1e-4)


def test_kl_compares_with_previous_loop() -> None:
    tensors = {1: [[0.5, 0.5], [0.25, 0.75]], 2: [[0.25, 0.75], [0.25, 0.75]]}
    by_hand = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert score(Kl(), 2, probabilities=tensors) == pytest.approx([-by_hand, 0.0], abs=1e-6)


def test_state_delta_is_relative_change() -> None:
    states = {1: [[[0.0, 0.0], [4.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]], 2: [[[0.0, 3.0], [4.0, 0.0]], [[1.0, 0.0]] * 2]}
    assert score(StateDelta(), 2, states=states) == pytest.approx([-3 / 5, -1 / math.sqrt(2)])


def test_state_delta_of_a_state_of_zero() -> None:
    states = {1: [[1.0], [0.0]], 2: [[0.0], [0.0]]}
    assert score(StateDelta(), 2, states=states) == [-INF, 0.0]


@pytest.mark.parametrize("exit", [Kl(), StateDelta()])
def test_first_loop_scores_minus_infinity(exit: Exit) -> None:
    assert score(exit, 1) == [-INF, -INF]


def test_sequence_score_is_mean_over_real_tokens() -> None:
    batch = Batch(
        tokens=torch.zeros(2, 3, dtype=torch.int64),
        labels=torch.zeros(2, 3, dtype=torch.int64),
        positions=torch.tensor([[0, 1, 2], [0, 1, PAD]]),
        sample=torch.arange(2),
    )
    assert sequence_score(torch.tensor([[1.0, 2.0, 6.0], [1.0, 2.0, 1e9]]), batch).tolist() == [3.0, 1.5]
    assert sequence_score(torch.full((2, 3), -INF), batch).tolist() == [-INF, -INF]


EXITS = sorted(offer.name for offer in builtin_offers() if offer.kind == "exit")


def test_the_built_in_ones() -> None:
    assert EXITS == ["depth", "entropy", "gate_cdf", "kl", "logit_margin", "max_prob", "state_delta"]


@pytest.mark.parametrize("name", EXITS)
def test_builds_with_a_finite_default_threshold(name: str) -> None:
    assert math.isfinite(component("exit", name).build().threshold)


@pytest.mark.parametrize(
    ("written", "threshold"),
    [
        ({"type": "depth", "loops": 3}, 3.0),
        ({"type": "logit_margin", "threshold": 4.0}, 4.0),
        ({"type": "kl", "threshold": -0.5}, -0.5),
    ],
)
def test_a_threshold_is_an_option(written: dict[str, Any], threshold: float) -> None:
    assert component("exit", written).build().threshold == threshold


@pytest.mark.parametrize("name", ["kl", "entropy", "state_delta"])
def test_unreachable_threshold_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="threshold"):
        component("exit", {"type": name, "threshold": 0.1})


def sure(p: float) -> list[list[float]]:
    return [[p, 1 - p], [p, 1 - p]]


@pytest.mark.parametrize("exit", [LogitMargin(), MaxProb(), Entropy()])
def test_the_surer_the_readier(exit: Exit) -> None:
    scores = [score(exit, 1, probabilities={1: sure(p)})[0] for p in (0.5, 0.6, 0.9, 0.99)]
    assert scores == sorted(scores)
    assert len(set(scores)) == 4
