"""The order of training: every sequence once an epoch, the same from any place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopkit.data.sampler import Sampler


def test_epoch_contains_every_sequence_once() -> None:
    order = Sampler(100, seed=1).indices(0, 300)
    epochs = [order[start : start + 100] for start in (0, 100, 200)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != list(range(100))


@given(st.integers(1, 40), st.integers(0, 200), st.integers(0, 90), st.integers(0, 2**40))
def test_stream_has_random_access(size: int, start: int, count: int, seed: int) -> None:
    stream = Sampler(size, seed).indices(0, start + count)
    assert Sampler(size, seed).indices(start, count) == stream[start:]


def test_order_depends_on_the_seed() -> None:
    assert Sampler(50, 1).indices(0, 50) == Sampler(50, 1).indices(0, 50) != Sampler(50, 2).indices(0, 50)


def test_order_is_pinned() -> None:
    # a change here breaks the resumption of every run; it needs a new name for the order
    assert Sampler(10, 42).indices(0, 20) == [5, 0, 2, 7, 4, 3, 8, 6, 1, 9, 8, 4, 7, 0, 5, 9, 1, 6, 3, 2]


def test_order_without_shuffle() -> None:
    assert Sampler(3, 7, shuffle=False).indices(1, 6) == [1, 2, 0, 1, 2, 0]


def test_empty_dataset_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no sequences"):
        Sampler(0, 1)
