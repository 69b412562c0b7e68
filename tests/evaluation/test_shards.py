"""Batches shared out among ranks: each by one of them, none twice; and as many passes for all where they must."""

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
def test_every_batch_is_scored_once_and_all_make_as_many_passes(batches: int, world: int) -> None:
    shards = [EvaluationShard(rank, world, in_step=True) for rank in range(world)]
    taken = [list(shard.own(iter(range(batches)))) for shard in shards]  # type: ignore[arg-type]
    assert sorted(batch for own in taken for batch in own) == list(range(batches))
    passes = {len(own) + shard.missing(batches) for own, shard in zip(taken, shards, strict=True)}
    assert len(passes) == 1
    assert all(EvaluationShard(rank, world).missing(batches) == 0 for rank in range(world))


def test_only_what_every_probe_allows_is_shared(make_case: Callable[..., Case]) -> None:
    assert can_be_shared(make_case("evaluate.probes={norms: {}}").recipe.evaluate)
    assert not can_be_shared(make_case("evaluate.probes={norms: {tokens: 9}}").recipe.evaluate)
    assert not can_be_shared(make_case("evaluate.probes={norms: {}, radial: {}}").recipe.evaluate)
    assert not Radial().shareable


def test_a_probe_that_has_seen_nothing_takes_in_what_others_saw() -> None:
    probe = Norms()
    probe.share([1, 2], lambda own: torch.cat([own, torch.tensor([1.0, 3.0])]))
    assert probe.result().by_depth["state_norm"][2]["mean"] == 2.0  # type: ignore[index]


def test_one_rank_alone_changes_nothing() -> None:
    found = DepthSweep({1: 0.1, 2: 0.2}, tokens=7, batches=2, core_calls=4)
    assert EvaluationShard().joined(found, [Norms()], [1, 2]) is found
