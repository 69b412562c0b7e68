"""An evaluation divided among ranks: each batch on one rank, and equally many passes on each if they run in step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given
from hypothesis import strategies as st

from loopkit.components.probe.norms import Norms
from loopkit.components.probe.radial import Radial
from loopkit.evaluation.depth_sweep import DepthSweep
from loopkit.evaluation.shards import EvaluationShard, can_be_shared
from tests.evaluation.conftest import Case


@given(batches=st.integers(0, 60), world=st.integers(1, 17))
def test_each_batch_is_scored_once(batches: int, world: int) -> None:
    shards = [EvaluationShard(rank, world, in_step=True) for rank in range(world)]
    batches_by_rank = [list(shard.own(iter(range(batches)))) for shard in shards]  # type: ignore[arg-type]
    assert sorted(batch for own in batches_by_rank for batch in own) == list(range(batches))
    passes = {len(own) + shard.num_dummy_passes(batches) for own, shard in zip(batches_by_rank, shards, strict=True)}
    assert len(passes) == 1
    assert all(EvaluationShard(rank, world).num_dummy_passes(batches) == 0 for rank in range(world))


def test_every_probe_must_be_shareable(make_case: Callable[..., Case]) -> None:
    assert can_be_shared(make_case("evaluate.probes={norms: {}}").recipe.evaluate)
    assert not can_be_shared(make_case("evaluate.probes={norms: {tokens: 9}}").recipe.evaluate)
    assert not can_be_shared(make_case("evaluate.probes={norms: {}, radial: {}}").recipe.evaluate)
    assert not Radial().shareable


def test_probe_without_batches_merges_other_ranks() -> None:
    probe = Norms()
    probe.share([1, 2], lambda own: torch.cat([own, torch.tensor([1.0, 3.0])]))
    assert probe.result().by_depth["state_norm"][2]["mean"] == 2.0  # type: ignore[index]


def test_single_rank_keeps_its_sums() -> None:
    sums = DepthSweep({1: 0.1, 2: 0.2}, tokens=7, batches=2, core_calls=4)
    assert EvaluationShard().reduce(sums, [Norms()], [1, 2]) is sums
