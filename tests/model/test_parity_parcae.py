"""Our injection with Parcae's weights gives the reference implementation's numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from loopkit.components.injection import Diagonal
from tests.components.steps import step_for

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-10}
CASES = ("square", "rect", "init_square")
NAMES = {"log_rate": "A_log", "step_size": "dt_bias", "mix.weight": "B"}


class Case(NamedTuple):
    """One case of the fixture in one precision."""

    name: str
    dtype: torch.dtype
    module: Diagonal
    expected: dict[str, Tensor]

    def check(self, quantity: str, actual: Tensor, tolerance: float | None = None) -> None:
        expected = self.expected[f"{self.name}/{quantity}"]
        assert actual.dtype == self.dtype
        assert actual.shape == expected.shape, quantity
        error = ((actual - expected).abs() / (1 + expected.abs())).max().item()
        assert error < (tolerance or TOLERANCE[self.dtype]), f"{self.name}/{quantity}: off by {error:.1e}"

    def input(self, name: str) -> Tensor:
        return self.expected[f"{self.name}/{name}"]


@pytest.fixture(params=[torch.float32, torch.float64], ids=["fp32", "fp64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, golden_dir: Path, dtype: torch.dtype) -> Case:
    folder = golden_dir / "parcae"
    weights = load_file(folder / "weights.safetensors")
    expected = load_file(folder / f"expected{'_f64' if dtype == torch.float64 else ''}.safetensors")
    state = {name: weights[f"{request.param}/{published_name}"] for name, published_name in NAMES.items()}
    module = Diagonal(len(state["log_rate"]))
    # the input is as wide as the state in our models; the formula also serves another
    module.mix.weight = nn.Parameter(torch.empty_like(state["mix.weight"]))
    module.load_state_dict(state)
    return Case(request.param, dtype, module.to(dtype), expected)


def test_every_case_of_the_fixture_is_covered(golden_dir: Path) -> None:
    case_file = json.loads((golden_dir / "parcae/case.json").read_text())
    assert set(case_file["cases"]) == set(CASES)
    spared = {{"C.weight": "project.weight"}.get(name, name) for name in case_file["no_weight_decay"]}
    assert spared == {NAMES[name] for name in Diagonal.no_decay} | {"project.weight"}


def test_decay(case: Case) -> None:
    decay, d = case.module.coefficients()
    case.check("decay", decay)
    case.check("dt", d)
    # these two figures have passed through fp32 in both files
    case.check("decay_max", decay.max(), TOLERANCE[torch.float32])
    case.check("decay_mean", decay.mean(), TOLERANCE[torch.float32])
    assert ((decay > 0) & (decay < 1)).all()


def test_forward_and_gradients(case: Case) -> None:
    u = case.module(case.input("x"), case.input("e"), step_for(case.input("x")))
    case.check("forward", u.detach())
    u.square().sum().backward()
    for name, published_name in NAMES.items():
        gradient = case.module.get_parameter(name).grad
        assert gradient is not None
        case.check(f"grad_of_sum_square/{published_name}", gradient)


@torch.no_grad()
def test_eight_iterates_from_zero(case: Case) -> None:
    c, states = torch.zeros_like(case.input("x")), []
    for _ in range(8):
        c = case.module(c, case.input("e"), step_for(c))
        states.append(c)
    case.check("iterates_from_zero", torch.stack(states))


@torch.no_grad()
def test_initial_weights_equal_the_reference(golden_dir: Path) -> None:
    weights = load_file(golden_dir / "parcae/weights.safetensors")
    for name, value in Diagonal(32).named_parameters():
        torch.testing.assert_close(value.data, weights[f"init_square/{NAMES[name]}"], rtol=0, atol=2e-7)
