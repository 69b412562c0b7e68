"""Optimizer rules: who decays, and what a step does."""

from __future__ import annotations

import pytest
import torch

from loopkit.components.optimizer import AdamW, ParameterGroup


def groups() -> list[ParameterGroup]:
    def parameter(*shape: int) -> torch.nn.Parameter:
        return torch.nn.Parameter(torch.ones(shape))

    return [
        ParameterGroup("matrix", [parameter(2, 3)], "matrix"),
        ParameterGroup("embedding", [parameter(5, 2)], "embedding"),
        ParameterGroup("vector", [parameter(2)], "vector"),
        ParameterGroup("matrix, never decayed", [parameter(2, 2)], "matrix", decay=False),
    ]


@pytest.mark.parametrize(("decay", "expected"), [("all", [0.3, 0.3, 0.3, 0.0]), ("matrices", [0.3, 0.3, 0.0, 0.0])])
def test_decay_chooses_by_role_and_honours_what_components_say(decay: str, expected: list[float]) -> None:
    built = AdamW(weight_decay=0.3, decay=decay).build(groups())  # type: ignore[arg-type]
    assert [group["weight_decay"] for group in built.param_groups] == expected


def test_options_reach_torch() -> None:
    built = AdamW(betas=(0.8, 0.95), eps=1e-6).build(groups())
    assert isinstance(built, torch.optim.AdamW)
    for group in built.param_groups:
        assert (group["betas"], group["eps"], group["lr"]) == ((0.8, 0.95), 1e-6, 0.0)


def test_one_step_by_hand() -> None:
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    built = AdamW(weight_decay=0.1).build([ParameterGroup("vector", [weight], "vector")])
    weight.grad = torch.tensor([0.5])
    built.param_groups[0]["lr"] = 0.01
    built.step()
    # bias correction makes the first update the sign of the gradient
    assert weight.item() == pytest.approx(2.0 * (1 - 0.01 * 0.1) - 0.01, abs=1e-6)
