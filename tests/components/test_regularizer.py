"""Regularizers, by their formulas; padding counts nowhere."""

from __future__ import annotations

import pytest
import torch

from loopkit.components.regularizer import Regularizer
from loopkit.components.regularizer.motion import FixedPoint, StepL2
from loopkit.components.regularizer.scale import NormPenalty, ScaleAnchor
from loopkit.loop import PAD, Batch, Loops, Trajectory
from tests.model.tiny import batch, tiny


def run(data: Batch) -> Trajectory:
    return tiny(dtype=torch.float64).run(data, Loops.fixed(3))


def test_norm_penalty_and_scale_anchor_formulas() -> None:
    t = run(batch())
    s = torch.stack([t.state(k) for k in (1, 2, 3)])
    torch.testing.assert_close(NormPenalty()(t), s.square().mean())
    rms = s.square().mean(-1).sqrt()
    torch.testing.assert_close(ScaleAnchor(target=2.0)(t), (rms - 2).square().mean())


@pytest.mark.parametrize("regularizer", [NormPenalty(), ScaleAnchor(), StepL2(), StepL2(loops="all"), FixedPoint()])
def test_padding_counts_nowhere(regularizer: Regularizer) -> None:
    short = batch(rows=2, length=5)
    places = torch.cat([short.positions, torch.full((2, 4), PAD)], dim=1)
    filler = torch.full((2, 4), 3)
    padded = Batch(torch.cat([short.tokens, filler], 1), torch.cat([short.labels, filler], 1), places, short.sample)
    torch.testing.assert_close(regularizer(run(padded)), regularizer(run(short)))


def test_anchor_is_differentiable_at_zero() -> None:
    t = run(batch())
    zero = torch.zeros_like(t.state(1), requires_grad=True)
    for k in (1, 2, 3):
        t.keep(k, zero, None)
    ScaleAnchor()(t).backward()
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize("regularizer", [NormPenalty(), ScaleAnchor(), StepL2(), StepL2(loops="all"), FixedPoint()])
def test_regularizers_average_over_active_loops(regularizer: Regularizer) -> None:
    model, data, depths = tiny(dtype=torch.float64), batch(rows=3), [3, 1, 2]
    together = regularizer(model.run(data, Loops(3, 3, torch.tensor(depths))))
    alone = [regularizer(model.run(part, Loops.fixed(n))) for part, n in zip(data.split(1), depths, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone).mean())


def test_step_l2_of_last_loop_and_all_loops() -> None:
    t = run(batch())
    moved = torch.stack([(t.state(k) - t.state(k - 1)).norm(dim=-1).mean() for k in (1, 2, 3)])
    torch.testing.assert_close(StepL2()(t), moved[2])
    torch.testing.assert_close(StepL2(loops="all")(t), moved.mean())


def test_step_l2_is_differentiable_where_nothing_moves() -> None:
    t = run(batch())
    still = t.state(3).detach().requires_grad_()
    t.keep(3, still, None)
    t.keep(2, still, None)
    StepL2()(t).backward()
    assert still.grad.isfinite().all()


def test_fixed_point_is_one_more_application() -> None:
    model, data = tiny(dtype=torch.float64), batch()
    t, longer = model.run(data, Loops.fixed(3)), model.run(data, Loops.fixed(4))
    change = (longer.carried(4) - t.carried(3)).square().sum(dim=-1)
    expected = (change / (t.carried(3).square().sum(dim=-1) + 1e-6)).mean()
    torch.testing.assert_close(FixedPoint()(t), expected)


def test_fixed_point_is_zero_at_a_fixed_point() -> None:
    """A loop that keeps its state has no distance and no gradient."""
    model, data = tiny(dtype=torch.float64), batch()
    model.core.forward = lambda u, step: u  # type: ignore[method-assign]
    model.injection.forward = lambda c, e, step: c  # type: ignore[method-assign]
    value = FixedPoint()(model.run(data, Loops.fixed(3)))
    assert value.item() == 0.0
