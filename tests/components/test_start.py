"""Starting states."""

from __future__ import annotations

import math

import pytest
import torch

from loopkit.components.start import FromEmbedding, Normal, Zeros
from tests.components.steps import random, step_for


def test_embedding_and_zeros() -> None:
    e = random(2, 3, 4)
    assert FromEmbedding()(e, step_for(e)) is e
    assert torch.equal(Zeros()(e, step_for(e)), torch.zeros(2, 3, 4))


def test_normal_start_uses_noise_of_the_step() -> None:
    e = random(20, 30, 40, dtype=torch.float64)
    c = Normal(std=3.0)(e, step_for(e))
    assert c.dtype == e.dtype
    assert abs(c.std() - 3) < 0.1
    assert torch.equal(c, (3 * step_for(e).noise.normal(40)).double())
    torch.manual_seed(5)
    assert torch.equal(Normal(std=3.0)(e, step_for(e)), c)


@pytest.mark.parametrize("cut", [0.5, 1.0, 3.0])
def test_truncated_normal_is_conditional_gaussian(cut: float) -> None:
    e = random(40, 50, 60, dtype=torch.float64)
    c = Normal(std=2.0, truncate=cut)(e, step_for(e)).flatten() / 2
    assert c.abs().max() <= cut
    assert c.abs().max() > 0.95 * cut
    density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    mass = math.erf(cut / math.sqrt(2))
    variance = 1 - 2 * cut * density / mass
    assert c.mean().item() == pytest.approx(0, abs=0.01)
    assert c.var().item() == pytest.approx(variance, rel=0.02)
    # and its median absolute value
    half = math.sqrt(2) * torch.erfinv(torch.tensor(mass / 2, dtype=torch.float64)).item()
    assert c.abs().median().item() == pytest.approx(half, rel=0.02)
