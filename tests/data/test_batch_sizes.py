"""Batch = micro-batch · accumulation · ranks, and how a batch is partitioned."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopkit.data.batch_sizes import BatchSizes, largest_micro
from loopkit.training.step.deepspeed_config import deepspeed_config


@given(batch=st.integers(1, 512), micro=st.integers(1, 64), world=st.integers(1, 64))
def test_sizes_are_consistent_or_the_remedy_works(batch: int, micro: int, world: int) -> None:
    try:
        sizes = BatchSizes.of(batch, micro, world)
    except ValueError as error:
        message = str(error)
        assert all(str(number) in message for number in (batch, micro, world))
        near = int(match[1]) if (match := re.search(r"set train\.batch=(\d+)", message)) else batch
        fits = re.search(r"train\.micro_batch=(\d+)", message)
        assert fits is not None
        sizes = BatchSizes.of(near, int(fits[1]), world)
    config = deepspeed_config(sizes, None, {})
    triple = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * world
    assert config["train_batch_size"] == triple


@given(share=st.integers(1, 64), world=st.integers(1, 8), limit=st.integers(0, 100))
def test_largest_micro_batch_divides_and_fits(share: int, world: int, limit: int) -> None:
    micro = largest_micro(share * world, world, lambda size: size <= limit)
    assert share % micro == 0
    assert micro <= max(limit, 1)
    assert not any(share % size == 0 for size in range(micro + 1, min(limit, share) + 1))


def test_batch_must_be_a_multiple_of_ranks() -> None:
    with pytest.raises(ValueError, match=r"train\.batch is 10, ranks are 3: .*set train\.batch=9"):
        largest_micro(10, 3, lambda size: True)


def parts(batch: int, micro: int, rank: int = 0, world: int = 1) -> list[list[int]]:
    sizes = BatchSizes.of(batch, micro, world)
    return [list(range(batch))[sizes.rows(rank, step)] for step in range(sizes.accumulation)]


def test_ranks_read_interleaved_parts() -> None:
    assert parts(8, 2) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert parts(8, 2, rank=1, world=2) == [[2, 3], [6, 7]]
    for world, micro in ((1, 4), (2, 2), (4, 1)):  # a micro-step reads the same sequences on any number of ranks
        first = [row for rank in range(world) for row in parts(8, micro, rank, world)[0]]
        assert first == [0, 1, 2, 3]


@given(micro=st.integers(1, 7), accumulation=st.integers(1, 6), world=st.integers(1, 33))
def test_ranks_read_every_sequence_once(micro: int, accumulation: int, world: int) -> None:
    batch = micro * accumulation * world
    by_rank = [parts(batch, micro, rank, world) for rank in range(world)]
    assert all([len(rows) for rows in rank] == [micro] * accumulation for rank in by_rank)
    assert sorted(row for rank in by_rank for rows in rank for row in rows) == list(range(batch))
    for step in range(accumulation):  # in one micro-step all ranks together read consecutive sequences
        together = [row for rank in by_rank for row in rank[step]]
        assert together == list(range(together[0], together[0] + micro * world))


@pytest.mark.parametrize(
    ("batch", "micro", "world", "remedy"),
    [
        (10, 4, 1, r"set train\.micro_batch=2"),
        (6, 2, 2, r"set train\.micro_batch=1"),
        (2, 4, 1, r"set train\.micro_batch=2"),
    ],
)
def test_indivisible_batch_suggests_sizes(batch: int, micro: int, world: int, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"train\.batch is {batch}, .* not a multiple of .*{remedy}"):
        BatchSizes.of(batch, micro, world)
