"""Supervisions against cross-entropies formed by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from loopkit.components.supervision import ExitWeighted, LastN, PerLoop, Supervision, Terminal, log_exit_distribution
from loopkit.loop import Loops, Trajectory
from tests.model.tiny import batch, tiny


def run(unscored: int = 4, total: int = 3) -> Trajectory:
    return tiny(gate="linear", dtype=torch.float64).run(batch(unscored=unscored), Loops.fixed(total))


def nll_of(t: Trajectory) -> Tensor:
    """``[K, N]`` over the scored tokens alone."""
    ks = range(1, t.loops.total + 1)
    labels = t.batch.labels[t.batch.scored]
    return torch.stack([F.cross_entropy(t.logits(k)[t.batch.scored], labels, reduction="none") for k in ks])


@pytest.mark.parametrize("unscored", [0, 4])
@pytest.mark.parametrize(
    ("supervision", "loops"), [(Terminal(), [3]), (PerLoop(), [1, 2, 3]), (LastN(n=2), [2, 3]), (LastN(n=9), [1, 2, 3])]
)
def test_means_over_scored_tokens_and_loops(supervision: Supervision, loops: list[int], unscored: int) -> None:
    t = run(unscored)
    ce = nll_of(t).mean(dim=1)
    got = supervision(t)
    torch.testing.assert_close(got.loss, torch.stack([ce[k - 1] for k in loops]).mean())
    assert list(supervision.loops(3)) == list(got.ce) == loops
    for k in loops:
        torch.testing.assert_close(got.ce[k], ce[k - 1].detach())
        assert not got.ce[k].requires_grad


def test_exit_distribution_sums_to_one_and_the_last_loop_takes_the_rest() -> None:
    gates = 3 * torch.randn(4, 2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = log_exit_distribution(gates).exp()
    torch.testing.assert_close(p.sum(0), torch.ones(2, 5, dtype=torch.float64))
    open_ = gates.sigmoid()
    torch.testing.assert_close(p[0], open_[0])
    torch.testing.assert_close(p[2], open_[2] * (1 - open_[0]) * (1 - open_[1]))
    torch.testing.assert_close(p[3], (1 - open_[0]) * (1 - open_[1]) * (1 - open_[2]))
    torch.testing.assert_close(log_exit_distribution(gates[:1]), torch.zeros(1, 2, 5, dtype=torch.float64))


def test_closed_and_open_gates_keep_finite_gradients() -> None:
    gates = torch.tensor([[-200.0], [200.0], [0.0], [0.0]], requires_grad=True)
    log_p = log_exit_distribution(gates)
    assert log_p.isfinite().all()
    (log_p.exp() * log_p).sum().backward()
    assert gates.grad.isfinite().all()


@pytest.mark.parametrize("entropy", [0.0, 0.1])
def test_exit_weighted_losses(entropy: float) -> None:
    t = run()
    scored = t.batch.scored
    p = log_exit_distribution(torch.stack([t.gate(k) for k in (1, 2, 3)])).exp()[:, scored]
    h = -(p * p.log()).sum(0).mean()
    got = ExitWeighted(entropy=entropy)(t)
    torch.testing.assert_close(got.loss, (p * nll_of(t)).sum(0).mean() - entropy * h)
    torch.testing.assert_close(got.terms["exit_entropy"], h.detach())
    mean_exit = (p * torch.tensor([1.0, 2, 3])[:, None]).sum(0).mean()
    torch.testing.assert_close(got.terms["exit_mean"], mean_exit.detach())


def test_exit_weighted_logits() -> None:
    t = run()
    scored = t.batch.scored
    p = log_exit_distribution(torch.stack([t.gate(k) for k in (1, 2, 3)])).exp()
    mixed = sum(p[k - 1][..., None] * t.logits(k) for k in (1, 2, 3))
    got = ExitWeighted(mix="logits", entropy=0.0)(t)
    torch.testing.assert_close(got.loss, F.cross_entropy(mixed[scored], t.batch.labels[scored]))
    torch.testing.assert_close(torch.stack(list(got.ce.values())), nll_of(t).mean(1).detach())


@pytest.mark.parametrize("mix", ["losses", "logits"])
def test_gradients_of_exit_weighted_are_those_of_the_formula(mix: str) -> None:
    t = run()
    model, scored, labels = t.model, t.batch.scored, t.batch.labels[t.batch.scored]
    p = log_exit_distribution(torch.stack([t.gate(k) for k in (1, 2, 3)])).exp()
    if mix == "losses":
        wanted = (p[:, scored] * nll_of(t)).sum(0).mean()
    else:
        wanted = F.cross_entropy(sum(p[k - 1][..., None] * t.logits(k) for k in (1, 2, 3))[scored], labels)
    parameters = dict(model.named_parameters())
    theirs = torch.autograd.grad(wanted, list(parameters.values()), retain_graph=True)
    ours = torch.autograd.grad(ExitWeighted(mix=mix, entropy=0.0)(t).loss, list(parameters.values()))
    for name, a, b in zip(parameters, ours, theirs, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("supervision", [Terminal(), PerLoop(), ExitWeighted()])
def test_without_scored_tokens_the_loss_is_zero_and_can_be_differentiated(supervision: Supervision) -> None:
    t = run(unscored=12)
    loss = supervision(t).loss
    assert loss == 0
    loss.backward()
    gradients = [p.grad for p in t.model.parameters() if p.grad is not None]
    assert gradients
    assert all(g.abs().sum() == 0 for g in gradients)


@pytest.mark.parametrize("supervision", [Terminal(), PerLoop(), LastN(n=2), ExitWeighted(), ExitWeighted(mix="logits")])
def test_sequences_of_unequal_depth_are_supervised_as_if_alone(supervision: Supervision) -> None:
    model, data = tiny(gate="linear", dtype=torch.float64), batch(rows=3)
    depths = torch.tensor([3, 1, 2])
    together = supervision(model.run(data, Loops(3, 3, depths)))
    ones = [
        supervision(model.run(part, Loops.fixed(n))) for part, n in zip(data.split(1), depths.tolist(), strict=True)
    ]
    torch.testing.assert_close(together.loss, torch.stack([one.loss for one in ones]).mean())
    for name in together.terms:
        torch.testing.assert_close(together.terms[name], torch.stack([one.terms[name] for one in ones]).mean())
    # the last loop of all is the last of each
    torch.testing.assert_close(
        together.ce[3], torch.stack([one.ce[n] for one, n in zip(ones, (3, 1, 2), strict=True)]).mean()
    )
    if 2 in together.ce:
        torch.testing.assert_close(together.ce[2], torch.stack([ones[0].ce[2], ones[2].ce[1]]).mean())
