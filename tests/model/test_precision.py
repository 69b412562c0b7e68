"""Calling modules in another precision does not change them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from loopkit.model.precision import call_in


def test_parameters_are_cast_during_call_only() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    x = torch.ones(2, 3, dtype=torch.float64)
    got = call_in(torch.float64, {"part": module}, lambda: module(x))
    assert got.dtype == torch.float64
    torch.testing.assert_close(got.float(), module(x.float()))
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    got.sum().backward()
    assert module[0].weight.grad.dtype == torch.float32


def test_call_disables_autocast_and_restores_parameters() -> None:
    module = nn.Linear(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert call_in(torch.float64, {"part": module}, lambda: module(torch.ones(3).double())).dtype == torch.float64
    with pytest.raises(RuntimeError):
        call_in(torch.float64, {"part": module}, lambda: module(torch.ones(4)))
    assert module.weight.dtype == torch.float32
