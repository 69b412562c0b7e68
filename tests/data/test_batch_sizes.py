"""Batch = micro-batch · accumulation · ranks, or one line that says what to take."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopkit.data import rank_places
from loopkit.data.batch_sizes import BatchSizes, largest_micro
from loopkit.training.step.deepspeed_config import deepspeed_config


@given(batch=st.integers(1, 512), micro=st.integers(1, 64), world=st.integers(1, 64))
def test_the_generated_triple_is_consistent_or_the_remedy_works(batch: int, micro: int, world: int) -> None:
    try:
        sizes = BatchSizes.of(batch, micro, world)
    except ValueError as error:
        message = str(error)
        assert all(str(number) in message for number in (batch, micro, world))
        near = int(found[1]) if (found := re.search(r"take train\.batch=(\d+)", message)) else batch
        fits = re.search(r"train\.micro_batch=(\d+)", message)
        assert fits is not None
        sizes = BatchSizes.of(near, int(fits[1]), world)
    config = deepspeed_config(sizes, None, {})
    triple = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * world
    assert config["train_batch_size"] == triple


@given(share=st.integers(1, 64), world=st.integers(1, 8), most=st.integers(0, 100))
def test_the_largest_micro_batch_divides_and_fits(share: int, world: int, most: int) -> None:
    micro = largest_micro(share * world, world, lambda size: size <= most)
    assert share % micro == 0
    assert micro <= max(most, 1)
    assert not any(share % size == 0 for size in range(micro + 1, min(most, share) + 1))


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train\.batch is 10, ranks are 3: .*take train\.batch=9"):
        largest_micro(10, 3, lambda size: True)


@pytest.mark.parametrize(("batch", "micro", "world"), [(8, 2, 1), (24, 2, 3)])
def test_rows_are_those_that_the_data_gives_each_rank(batch: int, micro: int, world: int) -> None:
    sizes = BatchSizes.of(batch, micro, world)
    for rank in range(world):
        mine = [list(range(batch))[sizes.rows(rank, step)] for step in range(sizes.accumulation)]
        assert mine == [list(places) for places in rank_places(batch, micro, rank, world)]
