"""A step's sequences, shared out to ranks and micro-batches by arithmetic alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopkit.data.padded import PaddedExamples
from loopkit.data.rows import Examples
from loopkit.data.sampler import Sampler
from loopkit.data.steps import Steps, rank_places
from loopkit.data.windows import Windows
from tests.data.toys import examples_of, store_of


@pytest.fixture
def windows(tmp_path: Path) -> Windows:
    return Windows(store_of(tmp_path, ["".join(map(chr, range(32, 126)))]), 4, 4)  # 23 windows


def test_places_of_ranks() -> None:
    assert rank_places(8, 2) == [range(2), range(2, 4), range(4, 6), range(6, 8)]
    assert rank_places(8, 2, rank=1, world=2) == [range(2, 4), range(6, 8)]
    for world, micro in ((1, 4), (2, 2), (4, 1)):  # a micro step reads the same places on any number of ranks
        first = [place for rank in range(world) for place in rank_places(8, micro, rank, world)[0]]
        assert first == [0, 1, 2, 3]


@given(micro=st.integers(1, 7), accumulation=st.integers(1, 6), world=st.integers(1, 33))
def test_ranks_read_every_place_once_without_gap(micro: int, accumulation: int, world: int) -> None:
    batch = micro * accumulation * world
    read = [rank_places(batch, micro, rank, world) for rank in range(world)]
    assert all([len(places) for places in rank] == [micro] * accumulation for rank in read)
    assert sorted(place for rank in read for places in rank for place in places) == list(range(batch))
    for step in range(accumulation):  # in one micro step all ranks together read neighbours
        together = [place for rank in read for place in rank[step]]
        assert together == list(range(together[0], together[0] + micro * world))


@pytest.mark.parametrize(
    ("batch", "micro", "world", "hint"),
    [(10, 4, 1, "train.batch to 8"), (6, 2, 2, "train.batch to 4"), (2, 4, 1, "to 4")],
)
def test_a_batch_that_cannot_be_shared_out(batch: int, micro: int, world: int, hint: str) -> None:
    with pytest.raises(ValueError, match=rf"train\.batch {batch} is not a multiple of {world} ranks .*{hint}"):
        rank_places(batch, micro, 0, world)


def test_micro_batches_and_ranks_make_up_the_step(windows: Examples) -> None:
    alone = Steps(windows, Sampler(len(windows), 5), 8, 8).step(4)
    (whole,) = alone.batches()
    assert whole.sample.tolist() == list(range(32, 40))  # the step straddles two epochs of 23
    assert alone.indices == Sampler(len(windows), 5).indices(32, 8)
    found: dict[int, list[int]] = {}
    for rank in range(2):
        steps = Steps(windows, Sampler(len(windows), 5), 8, 2, rank, 2)
        assert steps.accumulation == 2
        step = steps.step(4)
        assert (step.sha, step.scored) == (alone.sha, alone.scored)
        for batch in step.batches():
            found |= dict(zip(batch.sample.tolist(), batch.tokens.tolist(), strict=True))
    assert found == dict(zip(whole.sample.tolist(), whole.tokens.tolist(), strict=True))


def test_steps_remember_nothing(windows: Examples) -> None:
    steps = Steps(windows, Sampler(len(windows), 5), 4, 4)
    forward = [steps.step(number).sha for number in range(8)]
    assert [steps.step(number).sha for number in reversed(range(8))] == forward[::-1]
    assert len(set(forward)) == 8


def test_scored_labels_of_a_step(tmp_path: Path) -> None:
    examples = PaddedExamples(examples_of(tmp_path, ["1+1=2", "10+1=11", "100+1=101", "1=1"]), 16)
    step = Steps(examples, Sampler(4, 0), 4, 1).step(0)
    assert step.scored == 1 + 2 + 3 + 1 == sum(batch.num_scored or 0 for batch in step.batches())
