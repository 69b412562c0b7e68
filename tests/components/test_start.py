"""Starting states."""

from __future__ import annotations

import torch

from loopkit.components.start import FromEmbedding, Normal, Zeros
from tests.components.steps import random, step_for


def test_embedding_and_zeros() -> None:
    e = random(2, 3, 4)
    assert FromEmbedding()(e, step_for(e)) is e
    assert torch.equal(Zeros()(e, step_for(e)), torch.zeros(2, 3, 4))


def test_normal_has_its_scale_and_comes_from_the_step_s_noise() -> None:
    e = random(20, 30, 40, dtype=torch.float64)
    c = Normal(std=3.0)(e, step_for(e))
    assert c.dtype == e.dtype
    assert abs(c.std() - 3) < 0.1
    assert torch.equal(c, (3 * step_for(e).noise.normal(40)).double())
    torch.manual_seed(5)
    assert torch.equal(Normal(std=3.0)(e, step_for(e)), c)
