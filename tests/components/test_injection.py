"""Injections, by their formulas; all keep the dtype of the state."""

from __future__ import annotations

import pytest
import torch

from loopkit.components.injection import Add, Concat, Gated, Injection, NoInjection
from loopkit.components.norm import RMSNorm
from tests.components.steps import random, step_for

C, E = random(2, 3, 4), random(2, 3, 4, seed=1)


def norm(width: int) -> RMSNorm:
    return RMSNorm(width)


def test_none_and_add() -> None:
    step = step_for(E)
    assert NoInjection()(C, E, step) is C
    torch.testing.assert_close(Add(4)(C, E, step), C + E)
    torch.testing.assert_close(Add(4, norm=norm)(C, E, step), RMSNorm(4)(C + E))


def test_concat_mixes_state_first() -> None:
    module = Concat(4)
    wanted = C @ module.mix.weight[:, :4].T + E @ module.mix.weight[:, 4:].T
    torch.testing.assert_close(module(C, E, step_for(E)), wanted)
    assert module.mix.bias is None
    assert Concat(4, bias=True).mix.bias is not None


def test_gate_chooses_between_both() -> None:
    module = Gated(4)
    g = module.gate(torch.cat([C, E], -1)).sigmoid()
    torch.testing.assert_close(module(C, E, step_for(E)), g * C + (1 - g) * E)
    torch.testing.assert_close(module(C, C, step_for(E)), C)


@pytest.mark.parametrize("module", [NoInjection(), Add(4), Add(4, norm=norm), Concat(4), Gated(4)])
def test_the_state_stays_fp32_under_autocast(module: Injection) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert module(C, E, step_for(E)).dtype == torch.float32
