"""Carries, by their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from loopkit.components.carry import Carry, Chain, Clamp, Damping, FromReadout, Identity, Normed
from loopkit.components.norm import RMSNorm
from tests.components.steps import random, step_for

S, Z = 5 * random(2, 3, 4), random(2, 3, 4, seed=1)


def norm(width: int) -> RMSNorm:
    return RMSNorm(width)


def carry(module: Carry, s: Tensor = S) -> tuple[Tensor, int]:
    """What it gives, and how often it asked for the readout."""
    readouts: list[int] = []
    return module(s, lambda: readouts.append(1) or Z, step_for(Z)), len(readouts)


def test_identity_norm_and_readout() -> None:
    assert carry(Identity())[0] is S
    state, readouts = carry(Normed(4, norm=norm))
    torch.testing.assert_close(state, RMSNorm(4)(S))
    assert readouts == 0
    state, readouts = carry(FromReadout())
    assert torch.equal(state, Z)
    assert readouts == 1


def test_readout_cannot_feed_a_state_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"the state \[2, 3, 2, 4\] is not shaped like the readout \[2, 3, 4\]"):
        carry(FromReadout(), random(2, 3, 2, 4))


def test_clamp_holds_the_scale_and_keeps_the_direction() -> None:
    s = S * torch.tensor([0.01, 1.0, 100.0])[:, None]
    state, _ = carry(Clamp(rms=2.0), s)
    torch.testing.assert_close(state.square().mean(-1).sqrt(), torch.full((2, 3), 2.0))
    torch.testing.assert_close(torch.cosine_similarity(state, s, dim=-1), torch.ones(2, 3))
    above, _ = carry(Clamp(rms=2.0, side="above"), s)
    assert torch.equal(above[:, 0], s[:, 0])
    torch.testing.assert_close(above[:, 2], state[:, 2])


def test_clamp_is_finite_at_zero() -> None:
    s = torch.zeros(1, 1, 4, requires_grad=True)
    state, _ = carry(Clamp(), s)
    state.sum().backward()
    assert state.isfinite().all()
    assert s.grad.isfinite().all()


def test_damping_shrinks_by_a_learned_factor() -> None:
    module = Damping()
    torch.testing.assert_close(module.logit.detach(), torch.tensor(2.0))
    torch.testing.assert_close(carry(module)[0], S / (1 + math.exp(-2)))
    torch.testing.assert_close(carry(Damping(factor=0.25))[0], S / 4)


def test_chain_applies_in_order() -> None:
    def normed(width: int, max_loops: int) -> Carry:
        return Normed(width, norm=norm)

    def damped(width: int, max_loops: int) -> Carry:
        return Damping(factor=0.5)

    torch.testing.assert_close(carry(Chain(4, 2, of=[normed, damped]))[0], RMSNorm(4)(S) / 2)
    torch.testing.assert_close(carry(Chain(4, 2, of=[damped, normed]))[0], RMSNorm(4)(S / 2))
    with pytest.raises(ValueError, match="lists no carry"):
        Chain(4, 2, of=[])
