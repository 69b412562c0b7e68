"""The sequences of a step on any number of ranks and micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.data.batch_sizes import BatchSizes
from loopkit.data.padded import PaddedExamples
from loopkit.data.rows import Examples
from loopkit.data.sampler import Sampler
from loopkit.data.steps import Steps
from loopkit.data.windows import Windows
from tests.data.toys import examples_of, store_of


@pytest.fixture
def windows(tmp_path: Path) -> Windows:
    return Windows(store_of(tmp_path, ["".join(map(chr, range(32, 126)))]), 4, 4)  # 23 windows


def test_micro_batches_of_all_ranks_make_the_step(windows: Examples) -> None:
    single = Steps(windows, Sampler(len(windows), 5), BatchSizes.of(8, 8, 1)).step(4)
    (reference,) = single.batches()
    assert reference.sample.tolist() == list(range(32, 40))  # the step straddles two epochs of 23
    assert single.indices == Sampler(len(windows), 5).indices(32, 8)
    tokens: dict[int, list[int]] = {}
    for rank in range(2):
        step = Steps(windows, Sampler(len(windows), 5), BatchSizes.of(8, 2, 2), rank).step(4)
        assert len(step.parts) == 2
        assert (step.sha, step.scored) == (single.sha, single.scored)
        for batch in step.batches():
            tokens |= dict(zip(batch.sample.tolist(), batch.tokens.tolist(), strict=True))
    assert tokens == dict(zip(reference.sample.tolist(), reference.tokens.tolist(), strict=True))


def test_steps_are_stateless(windows: Examples) -> None:
    steps = Steps(windows, Sampler(len(windows), 5), BatchSizes.of(4, 4, 1))
    forward = [steps.step(number).sha for number in range(8)]
    assert [steps.step(number).sha for number in reversed(range(8))] == forward[::-1]
    assert len(set(forward)) == 8


def test_scored_counts_labels_of_a_step(tmp_path: Path) -> None:
    examples = PaddedExamples(examples_of(tmp_path, ["1+1=2", "10+1=11", "100+1=101", "1=1"]), 16)
    step = Steps(examples, Sampler(4, 0), BatchSizes.of(4, 1, 1)).step(0)
    assert step.scored == 1 + 2 + 3 + 1 == sum(batch.num_scored or 0 for batch in step.batches())
