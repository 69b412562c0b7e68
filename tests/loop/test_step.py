"""Times and step data that components receive."""

from __future__ import annotations

import pytest
import torch

from loopkit.loop import Loops, Noise, Step


@pytest.mark.parametrize(
    ("k", "t", "dt"), [(0, 0.0, 0.0), (1, 0.0, 0.25), (3, 0.5, 0.25), (4, 0.75, 0.25), (5, 1.0, 0.0)]
)
def test_each_loop_covers_its_part_of_time(k: int, t: float, dt: float) -> None:
    x, places = torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.int64)
    step = Step(k, Loops.fixed(4), e=x, c=x, positions=places, noise=Noise(0, 0, places[0], places))
    assert step.t == pytest.approx(t)
    assert step.dt == pytest.approx(dt)
