"""Drawn loops depend on seed and step, not on ranks or micro-batches."""

from __future__ import annotations

import numpy as np
import pytest

from loopkit.components.schedule import Fixed, LogNormal, Uniform
from loopkit.components.schedule.curriculum import Curriculum
from loopkit.data.batch_sizes import BatchSizes
from loopkit.training.step.loop_sampling import LoopSampler


def drawer(per: str = "step", backprop: object = "all", seed: int = 3) -> LoopSampler:
    options = {"seed": seed, "per": per, "backprop": backprop, "num_steps": 100}
    return LoopSampler(LogNormal(max=12), **options)  # type: ignore[arg-type]


def test_draw_is_independent_of_micro_batch_and_rank() -> None:
    totals = set()
    for micro, world in ((8, 1), (2, 1), (1, 4)):
        sizes = BatchSizes.of(8, micro, world)
        draw = drawer().draw(5, sizes)
        totals |= {draw.loops(sizes, rank, step).total for rank in range(world) for step in range(sizes.accumulation)}
    assert len(totals) == 1


def test_steps_and_seeds_differ() -> None:
    sizes = BatchSizes.of(8, 8, 1)

    def sequence(seed: int) -> list[int]:
        return [drawer(seed=seed).draw(step, sizes).loops(sizes, 0, 0).total for step in range(30)]

    assert len(set(sequence(3))) > 3
    assert sequence(3) != sequence(4)
    assert sequence(3) == sequence(3)


def test_micro_steps_draw_separately_equal_on_ranks() -> None:
    sizes = BatchSizes.of(16, 2, 2)
    draw = drawer("micro_step").draw(0, sizes)
    assert len(draw.counts) == sizes.accumulation == 4
    for step in range(4):
        assert draw.loops(sizes, 0, step) == draw.loops(sizes, 1, step)
    assert draw.total(sizes) == draw.counts.max()
    assert draw.mean == draw.counts.mean()


def test_loops_of_a_sequence_follow_its_sample() -> None:
    one_part, split = BatchSizes.of(8, 8, 1), BatchSizes.of(8, 2, 2)
    draw = drawer("sequence").draw(7, one_part)
    assert (drawer("sequence").draw(7, split).counts == draw.counts).all()
    own = draw.loops(one_part, 0, 0).per_sequence
    assert own is not None
    pieces = {}
    for step in range(split.accumulation):
        ranks = [draw.loops(split, rank, step) for rank in range(2)]
        assert ranks[0].total == ranks[1].total  # ranks that loop a different number of times wait forever
        for rank in range(2):
            part = ranks[rank].per_sequence
            assert part is not None
            assert part.max() <= ranks[rank].total
            pieces[split.rows(rank, step).start] = part
    assert np.concatenate([pieces[start] for start in sorted(pieces)]).tolist() == own.tolist()


class Uneven(Uniform):
    """Loops at random points in time."""

    def times(self, rng: np.random.Generator, total: int) -> tuple[float, ...]:
        return (0.0, *np.sort(rng.random(total - 1)).tolist(), 1.0)


@pytest.mark.parametrize("per", ["step", "micro_step", "sequence"])
def test_times_are_equal_on_ranks_with_same_counts(per: str) -> None:
    options = {"seed": 3, "per": per, "backprop": "all", "num_steps": 9}
    sizes = BatchSizes.of(8, 2, 2)
    draw = LoopSampler(Uneven(max=8), **options).draw(4, sizes)  # type: ignore[arg-type]
    assert (draw.counts == LoopSampler(Uniform(max=8), **options).draw(4, sizes).counts).all()  # type: ignore[arg-type]
    counts_seen = []
    for step in range(sizes.accumulation):
        here = [draw.loops(sizes, rank, step).times for rank in range(2)]
        assert here[0] == here[1] == draw.loops(sizes, 0, step).times
        counts_seen.append(here[0])
    assert len(set(counts_seen)) == (1 if per == "step" else sizes.accumulation)


def test_times_differ_by_step_also_under_curriculum() -> None:
    sizes = BatchSizes.of(4, 4, 1)
    ramp = Curriculum(of=lambda: Uneven(min=5, max=5), start=5.0)
    drawer = LoopSampler(ramp, seed=0, per="step", backprop="all", num_steps=9)
    assert len({drawer.draw(step, sizes).loops(sizes, 0, 0).times for step in range(9)}) == 9


def test_times_are_even_unless_schedule_sets_them() -> None:
    sizes = BatchSizes.of(4, 4, 1)
    assert drawer().draw(0, sizes).loops(sizes, 0, 0).times == ()


@pytest.mark.parametrize(("backprop", "expected"), [("all", 6), (2, 2), (6, 6)])
def test_the_last_loops_carry_gradient(backprop: object, expected: int) -> None:
    sizes = BatchSizes.of(4, 4, 1)
    fixed = LoopSampler(Fixed(loops=6), seed=0, per="step", backprop=backprop, num_steps=1)  # type: ignore[arg-type]
    assert fixed.draw(0, sizes).loops(sizes, 0, 0).backprop == expected


def test_all_loops_carry_gradient_below_backprop() -> None:
    sizes = BatchSizes.of(4, 4, 1)
    draws = [LoopSampler(Uniform(max=8), seed=0, per="step", backprop=3, num_steps=1).draw(s, sizes) for s in range(40)]
    for draw in draws:
        loops = draw.loops(sizes, 0, 0)
        assert loops.backprop == min(loops.total, 3) == draw.max_backprop(sizes)


def test_curriculum_receives_training_progress() -> None:
    sizes = BatchSizes.of(4, 4, 1)
    ramp = LoopSampler(Curriculum(of=lambda: Fixed(loops=9), ramp=1.0), seed=0, per="step", backprop="all", num_steps=9)
    assert [int(ramp.draw(step, sizes).counts[0]) for step in range(9)] == [1, 2, 3, 4, 5, 5, 6, 7, 8]
