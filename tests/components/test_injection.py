"""Injections, by their formulas; all keep the dtype of the state."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from loopkit.components.injection import Add, Concat, Diagonal, Gated, Injection, NoInjection
from loopkit.components.norm import RMSNorm
from tests.components.steps import random, step_for
from tests.model.tiny import tiny

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
    expected = C @ module.mix.weight[:, :4].T + E @ module.mix.weight[:, 4:].T
    torch.testing.assert_close(module(C, E, step_for(E)), expected)
    assert module.mix.bias is None
    assert Concat(4, bias=True).mix.bias is not None


@pytest.mark.parametrize("seed", [0, 1])
def test_concat_init_copies_one_input(seed: int) -> None:
    modules = {init: built_concat(init, seed) for init in ("random", "state", "input")}
    torch.testing.assert_close(modules["state"](C, E, step_for(E)), C)
    torch.testing.assert_close(modules["input"](C, E, step_for(E)), E)
    assert modules["random"].mix.weight.abs().min() > 0


def built_concat(init: str, seed: int) -> Concat:
    """As a model has it after its init."""
    model = tiny(injection={"type": "concat", "init": init}, width=4, seed=seed)
    assert isinstance(model.injection, Concat)
    return model.injection


def test_gate_chooses_between_both() -> None:
    module = Gated(4)
    g = module.gate(torch.cat([C, E], -1)).sigmoid()
    torch.testing.assert_close(module(C, E, step_for(E)), g * C + (1 - g) * E)
    torch.testing.assert_close(module(C, C, step_for(E)), C)


def test_diagonal_decays_the_state_and_adds_the_input() -> None:
    module = Diagonal(4).double()
    c, e = C.double(), E.double()
    step = step_for(e)
    d = -torch.tensor(0.2, dtype=torch.float64).sqrt().log()
    torch.testing.assert_close(module(c, e, step), 0.2**0.5 * c + d * e, rtol=1e-6, atol=1e-6)
    for _ in range(60):
        c = module(c, e, step)
    torch.testing.assert_close(c, 1.4558 * e, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_diagonal_never_amplifies_the_state() -> None:
    module = Diagonal(4)
    for value in (-30.0, 0.0, 30.0):
        module.log_rate.fill_(value)
        module.step_size.fill_(-value)
        decay, d = module.coefficients()
        assert ((decay >= 0) & (decay <= 1) & (d >= 0) & decay.isfinite()).all()
    assert Diagonal(4, decay=0.9).coefficients()[0][0] == pytest.approx(0.9)


def test_zero_order_hold_is_the_exact_solution() -> None:
    """Integrating x' = -r x + W e with small steps over the step size gives the same state."""
    module = Diagonal(4, decay=0.3, input="zero_order_hold").double()
    with torch.no_grad():
        module.log_rate.copy_(torch.tensor([-1.0, 0.0, 0.5, 1.0]))
    c, e = C.double(), E.double()
    d, rate, steps = F.softplus(module.step_size), module.log_rate.exp(), 20_000
    x = c.clone()
    for _ in range(steps):
        x = x + d / steps * (-rate * x + module.mix(e))
    torch.testing.assert_close(module(c, e, step_for(c)), x, rtol=1e-3, atol=1e-3)


def test_zero_order_hold_settles_at_input_over_rate() -> None:
    module = Diagonal(4, input="zero_order_hold").double()
    c, e = torch.zeros_like(C).double(), E.double()
    for _ in range(100):
        c = module(c, e, step_for(c))
    torch.testing.assert_close(c, module.mix(e) / module.log_rate.exp())


@pytest.mark.parametrize("module", [NoInjection(), Add(4), Add(4, norm=norm), Concat(4), Gated(4), Diagonal(4)])
def test_the_state_stays_fp32_under_autocast(module: Injection) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert module(C, E, step_for(E)).dtype == torch.float32
