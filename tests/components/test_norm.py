"""Norms, by their formulas."""

from __future__ import annotations

import pytest
import torch

from loopkit.components.norm import LayerNorm, RMSNorm
from tests.components.steps import random


def test_rmsnorm_is_its_formula() -> None:
    x, norm = random(2, 3, 8), RMSNorm(8, eps=1e-3)
    with torch.no_grad():
        norm.weight.copy_(torch.arange(1.0, 9.0))
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * torch.arange(1.0, 9.0)
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(RMSNorm(8, gain=False, eps=1e-3)(x), expected / torch.arange(1.0, 9.0))


def test_layernorm_is_its_formula() -> None:
    x, norm = random(2, 3, 8), LayerNorm(8, eps=1e-3)
    with torch.no_grad():
        norm.weight.fill_(2.0)
        norm.bias.fill_(0.5)
    centred = x - x.mean(-1, keepdim=True)
    expected = centred / (x.var(-1, keepdim=True, correction=0) + 1e-3).sqrt()
    torch.testing.assert_close(norm(x), expected * 2 + 0.5)
    torch.testing.assert_close(LayerNorm(8, gain=False, eps=1e-3)(x), expected)


@pytest.mark.parametrize(
    ("norm", "names"),
    [
        (RMSNorm(4), ["weight"]),
        (RMSNorm(4, gain=False), []),
        (LayerNorm(4), ["bias", "weight"]),
        (LayerNorm(4, bias=False), ["weight"]),
        (LayerNorm(4, gain=False), []),
    ],
)
def test_unused_parameters_are_not_made(norm: torch.nn.Module, names: list[str]) -> None:
    assert sorted(name for name, _ in norm.named_parameters()) == names


def test_gain_precision_survives_narrow_input() -> None:
    x = random(2, 8).bfloat16()
    assert RMSNorm(8)(x).dtype == torch.float32
    assert LayerNorm(8)(x).dtype == torch.float32
    assert RMSNorm(8).bfloat16()(x).dtype == torch.bfloat16
    assert RMSNorm(8, gain=False)(x).dtype == torch.bfloat16
