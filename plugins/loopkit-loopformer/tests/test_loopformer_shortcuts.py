"""The shortcut schedule and the consistency loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loopformer_models import LOOPS, build, tokens, trained
from loopkit_loopformer import Shortcut, ShortcutConsistency

from loopkit.components.regularizer import over_tokens
from loopkit.loop import Loops


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_draws_follow_bounds_and_mean() -> None:
    schedule = Shortcut(min=2, max=7, spare=2)
    drawn = schedule.draw(generator(), 100_000)
    assert drawn.dtype == np.int64
    assert set(drawn) == set(range(2, 8))
    assert drawn.mean() == pytest.approx(schedule.mean, abs=0.02)
    assert schedule.bounds == (2, 7)
    assert schedule.draw(generator(), 1000, scale=0.5).max() == 2


@pytest.mark.parametrize("total", range(1, 9))
def test_times_are_distinct_grid_points(total: int) -> None:
    schedule = Shortcut(max=8)
    for seed in range(20):
        times = schedule.times(generator(seed), total)
        Loops(total, total, times=times)  # checks their number, order and ends
        steps = np.diff(times) * 8
        assert steps.sum() == 8
        assert (steps >= 1).all()
        np.testing.assert_allclose(steps, np.rint(steps))


def test_every_shortcut_is_equally_likely() -> None:
    schedule = Shortcut(max=4)
    draws = [schedule.times(rng, 3) for rng in [generator(5)] for _ in range(6000)]
    shares = {times: draws.count(times) / len(draws) for times in set(draws)}
    assert set(shares) == {(0, 0.25, 0.5, 1), (0, 0.25, 0.75, 1), (0, 0.5, 0.75, 1)}
    assert all(share == pytest.approx(1 / 3, abs=0.03) for share in shares.values())


def test_full_grid_is_the_long_run() -> None:
    assert Shortcut(max=4).times(generator(), 4) == (0, 0.25, 0.5, 0.75, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"min": 5, "max": 4}, "min must be 1 to max = 4, not 5"), ({"min": 0}, "min must be 1 to max = 8, not 0")],
)
def test_invalid_shortcuts_are_rejected(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shortcut(**options)
    with pytest.raises(ValueError, match="9 loops do not fit on a grid of 8"):
        Shortcut(max=8).times(generator(), 9)


def fixed_shortcut(loops: int, grid: int = LOOPS) -> ShortcutConsistency:
    """The consistency loss with a short run of a fixed number of loops."""
    return ShortcutConsistency(short=lambda: Shortcut(min=loops, max=loops, spare=grid - loops))


def test_value_is_distance_plus_short_cross_entropy() -> None:
    model, batch, part = trained(build()), tokens(), fixed_shortcut(2)
    t = model.run(batch, Loops.fixed(LOOPS), noise_key=(3, 5))
    loops = part.draw(t)
    assert loops.total == 2
    short = model.run(batch, loops)
    distance = (short.state(2) - t.state(LOOPS)).square().mean()
    expected = distance + short.nll([2]).mean()
    torch.testing.assert_close(part(t), expected)
    distance_only = ShortcutConsistency(ce=0.0, short=lambda: Shortcut(min=2, max=2, spare=LOOPS - 2))
    torch.testing.assert_close(distance_only(t), distance)


def test_long_run_receives_no_gradient() -> None:
    model, batch = trained(build()).train(), tokens()
    part = ShortcutConsistency(ce=0.0, short=lambda: Shortcut(min=1, max=1, spare=LOOPS - 1))
    t = model.run(batch, Loops.fixed(LOOPS))
    actual = torch.autograd.grad(part(t), list(model.parameters()), allow_unused=True)
    short = model.run(batch, part.draw(t))
    target = t.state(LOOPS).detach()
    loss = over_tokens((short.state(1) - target).square().mean(-1), t)
    expected = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    torch.testing.assert_close([g for g in actual if g is not None], [g for g in expected if g is not None])
    assert [g is None for g in actual] == [g is None for g in expected]


@torch.no_grad()
def test_value_is_zero_if_model_ignores_time() -> None:
    """The identity has no distance; neither has a model whose blocks do not depend on time."""
    identity = build()
    t = identity.run(tokens(), Loops.fixed(LOOPS))
    assert ShortcutConsistency(ce=0.0)(t) == 0
    unconditioned = trained(build())
    for block in unconditioned.core.blocks:
        block.modulation.factors.weight.zero_()  # the bias stays: the blocks act, whatever the time
    t = unconditioned.run(tokens(), Loops(2, 2, times=(0.0, 0.25, 1.0)))
    assert not torch.equal(t.state(2), t.state(0))
    assert ShortcutConsistency(ce=0.0, short=lambda: Shortcut(min=2, max=2, spare=LOOPS - 2))(t) == 0
    conditioned = trained(build()).run(tokens(), Loops(2, 2, times=(0.0, 0.1, 1.0)))
    assert ShortcutConsistency(ce=0.0, short=lambda: Shortcut(min=2, max=2, spare=LOOPS - 2))(conditioned) > 1e-6


@torch.no_grad()
def test_short_run_depends_only_on_seed_and_step() -> None:
    model, part = build(), ShortcutConsistency(short=lambda: Shortcut(min=1, max=LOOPS))
    batch = tokens()

    def drawn(seed: int, step: int, rows: slice = slice(None)) -> Loops:
        return part.draw(model.run(batch.rows(rows), Loops.fixed(LOOPS), noise_key=(seed, step)))

    assert drawn(1, 2) == drawn(1, 2, slice(2, 3))
    assert len({drawn(1, step).times for step in range(30)}) > 5
    assert [drawn(1, step).times for step in range(9)] != [drawn(2, step).times for step in range(9)]


@torch.no_grad()
def test_short_run_is_at_most_the_long_run() -> None:
    model, part = build(), fixed_shortcut(7, grid=8)
    t = model.run(tokens(), Loops(3, 2))
    assert (part.draw(t).total, part.draw(t).backprop) == (3, 2)
