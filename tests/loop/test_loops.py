"""Contradictory loop counts are refused; time runs from 0 to 1."""

from __future__ import annotations

import pytest

from loopkit.loop import Loops


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total": -1, "backprop": 0}, "total must be at least 0"),
        ({"total": 4, "backprop": 0}, "backprop must be 1 to total = 4"),
        ({"total": 4, "backprop": 5}, "backprop must be 1 to total = 4"),
        ({"total": 2, "backprop": 2, "times": (0.0, 1.0)}, "must be 3 rising points, one more than total"),
        ({"total": 2, "backprop": 2, "times": (0.0, 0.9, 0.5)}, "rising points"),
        ({"total": 2, "backprop": 2, "times": (0.1, 0.5, 1.0)}, "from 0 to 1"),
    ],
)
def test_contradictory_loops_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Loops(**arguments)


def test_zero_loops_are_legal() -> None:
    assert Loops.fixed(0) == Loops(0, 0)


def test_time_is_even_unless_given() -> None:
    assert [Loops.fixed(4).time(k) for k in range(-1, 6)] == [0, 0, 0.25, 0.5, 0.75, 1, 1]
    assert [Loops(2, 2, times=(0.0, 0.9, 1.0)).time(k) for k in range(3)] == [0, 0.9, 1]
    assert Loops.fixed(0).time(0) == 0
