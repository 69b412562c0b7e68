"""Thresholds, by hand on three sequences of two tokens and three loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from loopkit.components.exit import Kl, LogitMargin, sequence_score
from loopkit.evaluation.early_exit.calibration import NEVER, ScoreTable, choose, exit_depths, tabulate
from loopkit.inference import exit_early
from loopkit.loop import Loops
from tests.model.tiny import batch, tiny

SCORES = torch.tensor([[1.0, 4.0], [2.0, 2.0], [5.0, 0.0]], dtype=torch.float64)
NLL = torch.tensor([[4.0, 2.0, 2.0], [6.0, 4.0, 2.0], [2.0, 2.0, 2.0]], dtype=torch.float64)


def table(nll: Tensor = NLL, scores: Tensor = SCORES) -> ScoreTable:
    return ScoreTable(torch.tensor([2, 2, 2]), nll, {"an_exit": scores})


@pytest.mark.parametrize(
    ("threshold", "stops"),
    [
        (-math.inf, [1, 1, 1]),
        (1.0, [1, 1, 1]),
        (1.5, [2, 1, 1]),
        (3.0, [2, 3, 1]),
        (5.0, [3, 3, 1]),
        (NEVER, [3, 3, 3]),
    ],
)
def test_exits_at_the_first_loop_above_threshold(threshold: float, stops: list[int]) -> None:
    assert exit_depths(SCORES, threshold).tolist() == stops


def test_loss_covers_all_tokens() -> None:
    assert table().loss(torch.tensor([1, 2, 3])) == pytest.approx((4 + 4 + 2) / 6)
    unequal = ScoreTable(torch.tensor([1, 2, 5]), NLL, {})
    assert unequal.loss(torch.tensor([1, 2, 3])) == pytest.approx(10 / 8)


def test_fewest_loops_within_the_bound_are_taken() -> None:
    # thresholds 0 1 2 4 5 stop at (1,1,1) (1,1,1) (2,1,1) (2,3,1) (3,3,1): losses 2, 2, 10/6, 1, 1; all loops cost 1
    result = choose(table(), "an_exit", tolerance=0.01, thresholds=6)
    assert result.full_loss == pytest.approx(1.0)
    assert result.loss_bound == pytest.approx(1 + math.log(1.01))
    assert result.chosen.threshold == pytest.approx(4.0)
    assert result.chosen.average_loops == pytest.approx(2.0)
    assert result.chosen.loss == pytest.approx(1.0)


def test_wider_bounds_take_fewer_loops() -> None:
    assert choose(table(), "an_exit", tolerance=math.expm1(0.7), thresholds=6).chosen.average_loops == pytest.approx(
        4 / 3
    )
    assert choose(table(), "an_exit", tolerance=1e9).chosen.average_loops == 1.0


def test_thresholds_are_quantiles_or_never() -> None:
    scores = torch.arange(200, dtype=torch.float64).reshape(100, 2)
    big = ScoreTable(torch.ones(100, dtype=torch.int64), torch.ones(100, 3, dtype=torch.float64), {"an_exit": scores})
    trials = choose(big, "an_exit").trials
    assert len(trials) == 52
    assert [trial.threshold for trial in trials[:51]] == pytest.approx([199 * share / 50 for share in range(51)])
    assert trials[-1].threshold == NEVER
    assert [trial.average_loops for trial in trials] == sorted(trial.average_loops for trial in trials)


def test_never_is_chosen_if_all_loops_are_needed() -> None:
    result = choose(table(nll=torch.tensor([[50.0, 40.0, 2.0]] * 3, dtype=torch.float64)), "an_exit")
    assert result.chosen.threshold == NEVER
    assert result.chosen.average_loops == 3
    assert result.chosen.loss == result.full_loss


def test_non_finite_scores_are_not_thresholds() -> None:
    scores = torch.tensor([[-math.inf, 1.0], [-math.inf, 2.0], [-math.inf, 3.0]], dtype=torch.float64)
    trials = choose(table(scores=scores), "an_exit", thresholds=3).trials
    assert [trial.threshold for trial in trials] == [1.0, 2.0, 3.0, NEVER]
    assert min(trial.average_loops for trial in trials) == 2.0
    only = choose(table(scores=torch.full((3, 2), -math.inf, dtype=torch.float64)), "an_exit")
    assert [trial.threshold for trial in only.trials] == [NEVER]


@torch.no_grad()
def test_one_pass_measures_every_score_and_cost() -> None:
    model = tiny(dtype=torch.float64)
    batches = [batch(3, seed=1, unscored=2), batch(2, seed=2)]
    exits = {"margin": LogitMargin(), "kl": Kl()}
    calls = []
    handle = model.core.register_forward_pre_hook(lambda module, arguments: calls.append(1))
    result = tabulate(model, batches, exits, 4, lambda k: k)
    handle.remove()
    assert len(calls) == 4 * 2
    assert result.tokens.tolist() == [10, 10, 10, 12, 12]
    assert result.nll.shape == (5, 4)
    assert result.scores["margin"].shape == (5, 3)
    assert (result.scores["kl"][:, 0] == -math.inf).all()
    for rows, which in ((slice(0, 3), 0), (slice(3, 5), 1)):
        full = model.run(batches[which], Loops.fixed(4))
        for k in (1, 2, 3, 4):
            cost = full.nll([k], at=k)[0].sum(dim=1)
            torch.testing.assert_close(result.nll[rows, k - 1], cost)
        top = full.logits(2, at=2).topk(2, dim=-1).values
        margin = sequence_score(top[..., 0] - top[..., 1], batches[which])
        torch.testing.assert_close(result.scores["margin"][rows, 1], margin, rtol=1e-6, atol=1e-6)


def test_calibration_predicts_the_early_exit_run() -> None:
    model = tiny(dtype=torch.float64)
    rows = batch(8)
    result = tabulate(model, [rows], {"margin": LogitMargin()}, 4, lambda k: k)
    for trial in choose(result, "margin", thresholds=7).trials:
        # slightly below, because the threshold is one of the scores
        exited = exit_early(model, rows, LogitMargin(), 4, threshold=trial.threshold - 1e-6)
        assert exited.depth.double().mean().item() == trial.average_loops
