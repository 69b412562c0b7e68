"""Prelude and coda wear their norm on the side that faces the loop."""

from __future__ import annotations

import torch

from loopkit.components.norm import RMSNorm
from loopkit.model.stage import Coda, Prelude
from tests.components.steps import random, step_for
from tests.components.test_core import Append


def test_norm_is_last_in_the_prelude_and_first_in_the_coda() -> None:
    Append.made = 0
    blocks, norm, x = [Append(), Append()], RMSNorm(4), random(1, 2, 4)
    torch.testing.assert_close(Prelude(blocks, norm)(x, step_for(x)), norm(100 * x + 12))
    torch.testing.assert_close(Coda(blocks, norm)(x, step_for(x)), 100 * norm(x) + 12)
    assert Prelude([], None)(x, step_for(x)) is x
    assert Coda([], None)(x, step_for(x)) is x
