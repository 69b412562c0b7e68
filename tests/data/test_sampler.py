"""The order of training: every sequence once an epoch, the same from any place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopkit.data.sampler import Sampler


def test_every_sequence_once_an_epoch() -> None:
    order = Sampler(100, seed=1).indices(0, 300)
    epochs = [order[start : start + 100] for start in (0, 100, 200)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != list(range(100))


@given(st.integers(1, 40), st.integers(0, 200), st.integers(0, 90), st.integers(0, 2**40))
def test_a_stream_that_can_be_entered_anywhere(size: int, start: int, count: int, seed: int) -> None:
    whole = Sampler(size, seed).indices(0, start + count)
    assert Sampler(size, seed).indices(start, count) == whole[start:]


def test_the_seed_decides() -> None:
    assert Sampler(50, 1).indices(0, 50) == Sampler(50, 1).indices(0, 50) != Sampler(50, 2).indices(0, 50)


def test_the_order_is_pinned() -> None:
    # a change here breaks the resumption of every run; it needs a new name for the order
    assert Sampler(10, 42).indices(0, 20) == [5, 0, 2, 7, 4, 3, 8, 6, 1, 9, 8, 4, 7, 0, 5, 9, 1, 6, 3, 2]


def test_without_shuffling_the_text_keeps_its_order() -> None:
    assert Sampler(3, 7, shuffle=False).indices(1, 6) == [1, 2, 0, 1, 2, 0]


def test_nothing_to_train_on() -> None:
    with pytest.raises(ValueError, match="has no sequences"):
        Sampler(0, 1)
