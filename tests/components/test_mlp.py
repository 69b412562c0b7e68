"""MLPs, by their formulas."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from loopkit.components.mlp import Gelu, Mlp, Relu2, SwiGLU
from tests.components.steps import random, step_for


def test_swiglu_is_its_formula() -> None:
    x, mlp = random(2, 3, 4), SwiGLU(4, ratio=1.5)
    expected = (F.silu(x @ mlp.gate.weight.T) * (x @ mlp.up.weight.T)) @ mlp.out.weight.T
    torch.testing.assert_close(mlp(x, step_for(x)), expected)
    assert mlp.up.weight.shape == (6, 4)
    assert mlp.up.bias is None


@pytest.mark.parametrize(
    ("mlp", "bend"),
    [
        (Gelu(4, ratio=2, bias=True), F.gelu),
        (Gelu(4, ratio=2, bias=True, exact=False), lambda x: F.gelu(x, approximate="tanh")),
        (Relu2(4, ratio=2, bias=True), lambda x: x.clamp(min=0) ** 2),
    ],
)
def test_two_matrices_are_their_formula(mlp: Mlp, bend: object) -> None:
    x = random(2, 3, 4)
    expected = F.linear(bend(F.linear(x, mlp.up.weight, mlp.up.bias)), mlp.out.weight, mlp.out.bias)
    torch.testing.assert_close(mlp(x, step_for(x)), expected)


@pytest.mark.parametrize("kind", [SwiGLU, Gelu, Relu2])
def test_hidden_overrules_ratio(kind: type[Mlp]) -> None:
    assert kind(4, ratio=3, hidden=7).out.weight.shape == (4, 7)
    assert kind(3, ratio=2.5).out.weight.shape == (3, 8)


def test_roles_select_the_right_matrices() -> None:
    gated, plain = SwiGLU(4), Gelu(4)
    assert {role: matrix for role, (matrix, _) in gated.roles().items()} == {
        "gate": gated.gate,
        "up": gated.up,
        "down": gated.out,
    }
    assert {role: matrix for role, (matrix, _) in plain.roles().items()} == {"up": plain.up, "down": plain.out}
    assert all(rows == slice(0, matrix.out_features) for matrix, rows in gated.roles().values())
