"""Supervisions against cross-entropies formed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from loopkit.components.supervision import (
    ExitImprovement,
    ExitWeighted,
    LastN,
    PerLoop,
    Supervision,
    Terminal,
    log_exit_distribution,
)
from loopkit.loop import Batch, Loops, Trajectory
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


def test_exit_distribution_sums_to_one() -> None:
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
def test_exit_weighted_gradients_equal_the_formula(mix: str) -> None:
    t = run()
    model, scored, labels = t.model, t.batch.scored, t.batch.labels[t.batch.scored]
    p = log_exit_distribution(torch.stack([t.gate(k) for k in (1, 2, 3)])).exp()
    if mix == "losses":
        expected = (p[:, scored] * nll_of(t)).sum(0).mean()
    else:
        expected = F.cross_entropy(sum(p[k - 1][..., None] * t.logits(k) for k in (1, 2, 3))[scored], labels)
    parameters = dict(model.named_parameters())
    reference = torch.autograd.grad(expected, list(parameters.values()), retain_graph=True)
    actual = torch.autograd.grad(ExitWeighted(mix=mix, entropy=0.0)(t).loss, list(parameters.values()))
    for name, a, b in zip(parameters, actual, reference, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("asks", ["after", "before"])
@pytest.mark.parametrize("unscored", [0, 4])
def test_exit_improvement_equals_cross_entropy_with_targets(asks: str, unscored: int) -> None:
    t = run(unscored)
    nll = nll_of(t).detach()
    g = torch.stack([t.gate(k) for k in (1, 2, 3)])[:, t.batch.scored]
    expected = 0
    for j in (1, 2):
        gain = (nll[j - 1] - nll[j]).clamp(min=0)
        go_on = 1 / (1 + (-7.0 * (gain - 0.1)).exp())
        leave = g[j if asks == "after" else j - 1].sigmoid()
        expected = expected - (go_on * (1 - leave).log() + (1 - go_on) * leave.log()).mean() / 2
    got = ExitImprovement(k=7.0, gamma=0.1, gate_index=asks)(t)
    torch.testing.assert_close(got.loss, expected)
    torch.testing.assert_close(torch.stack(list(got.ce.values())), nll.mean(1))
    assert 0 < got.terms["continue_target"] < 1
    # nothing of the target has a gradient: only what the gate reads is moved
    parameters = dict(t.model.named_parameters())
    actual = torch.autograd.grad(got.loss, list(parameters.values()), allow_unused=True, retain_graph=True)
    reference = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
    for name, a, b in zip(parameters, actual, reference, strict=True):
        assert (a is None) == (b is None), name
        if a is not None:
            torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


class Told:
    """A trajectory of one scored token a sequence, whose losses and gates are given."""

    def __init__(self, nll: list[float], gates: list[float]) -> None:
        self.loops = Loops.fixed(len(nll))
        self.batch = batch(rows=1, length=1)
        self.gates = [torch.full((1, 1), value, dtype=torch.float64, requires_grad=True) for value in gates]
        self.losses = torch.tensor(nll, dtype=torch.float64)[:, None, None]

    def gate(self, k: int) -> Tensor:
        return self.gates[k - 1]

    def nll(self, ks: range) -> Tensor:
        return self.losses[[k - 1 for k in ks]]

    def active(self, k: int) -> None:
        return None


class Published(Told):
    """A trajectory of which a reference implementation has left the readouts and gates."""

    def __init__(self, tensors: dict[str, Tensor], head: Tensor, steps: int) -> None:
        ids = tensors["input_ids"]
        self.loops = Loops.fixed(steps)
        # the reference shifts its labels itself
        self.batch = Batch.of(ids, torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -100)], dim=1))
        self.hidden = tensors[f"ut{steps}/hidden"].double()
        self.gates = list(tensors[f"ut{steps}/gate_logits"].double())
        self.head = head.double()

    def readout(self, k: int) -> Tensor:
        return self.hidden[k - 1]

    def score(self, z: Tensor, weight: float | None = None) -> Tensor:
        logits = (z @ self.head.T).movedim(-1, 1)
        return F.cross_entropy(logits, self.batch.labels, reduction="none", ignore_index=-100)

    def nll(self, ks: range, weight: Tensor | None = None) -> Tensor:
        return torch.stack([self.score(self.readout(k)) for k in ks])


@pytest.mark.parametrize("steps", [4, 8])
@pytest.mark.parametrize("folder", ["hf", "hf_gqa"])
def test_exit_weighted_gives_ouro_s_losses(golden_dir: Path, folder: str, steps: int) -> None:
    golden = golden_dir / "ouro_tiny"
    tensors = load_file(golden / f"{folder}.expected.safetensors")
    t = Published(tensors, load_file(golden / folder / "model.safetensors")["lm_head.weight"], steps)
    p = tensors[f"ut{steps}/exit_pdf"].double()[:, t.batch.scored]
    entropy = -(p * p.clamp(min=1e-30).log()).sum(0).mean()
    for mix, name in {
        "logits": "loss_mixture_logits_shifted",
        "losses": "loss_exit_weighted_sum_of_ce_shifted",
    }.items():
        got = ExitWeighted(mix=mix, entropy=0.1)(t)  # type: ignore[arg-type]
        expected = tensors[f"ut{steps}/{name}"].double()
        torch.testing.assert_close(got.loss + 0.1 * got.terms["exit_entropy"], expected, rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(got.terms["exit_entropy"], entropy, rtol=2e-5, atol=2e-5)
        ce = torch.stack(list(got.ce.values()))
        torch.testing.assert_close(ce, tensors[f"ut{steps}/ce_per_step_shifted"].double(), rtol=2e-5, atol=2e-5)


def test_targets_of_exit_improvement_in_closed_form() -> None:
    # a gain of exactly gamma wants one half; a loss that rises counts as no gain
    t = Told([2.0, 1.995, 2.5], [0.0, 0.0, 0.0])
    got = ExitImprovement(k=50.0, gamma=0.005)(t)  # type: ignore[arg-type]
    no_gain = 1 / (1 + torch.tensor(0.25, dtype=torch.float64).exp())
    torch.testing.assert_close(got.terms["continue_target"], (0.5 + no_gain) / 2)
    torch.testing.assert_close(got.loss.detach(), torch.tensor(2.0, dtype=torch.float64).log())
    # the gradient of each gate is its probability of leaving minus the wanted one
    got.loss.backward()
    torch.testing.assert_close(t.gates[1].grad, torch.zeros(1, 1, dtype=torch.float64))
    torch.testing.assert_close(t.gates[2].grad, (0.5 - (1 - no_gain)).reshape(1, 1) / 2)
    assert t.gates[0].grad.abs().sum() == 0


@pytest.mark.parametrize(("gain", "gate"), [(1.0, -30.0), (0.0, 30.0)])
def test_exit_improvement_is_minimal_for_correct_gate(gain: float, gate: float) -> None:
    # a large slope: the wanted decision is all but certain
    right = ExitImprovement(k=1000.0, gamma=0.5)(Told([2.0, 2.0 - gain], [0.0, gate]))  # type: ignore[arg-type]
    wrong = ExitImprovement(k=1000.0, gamma=0.5)(Told([2.0, 2.0 - gain], [0.0, -gate]))  # type: ignore[arg-type]
    assert right.loss.item() < 1e-9
    assert wrong.loss.item() == pytest.approx(30, rel=1e-6)


def test_one_loop_improves_on_nothing() -> None:
    t = run(total=1)
    got = ExitImprovement()(t)
    assert got.loss == 0
    got.loss.backward()
    assert list(got.ce) == [1]


@pytest.mark.parametrize("supervision", [Terminal(), PerLoop(), ExitWeighted(), ExitImprovement()])
def test_loss_without_scored_tokens_is_zero(supervision: Supervision) -> None:
    t = run(unscored=12)
    loss = supervision(t).loss
    assert loss == 0
    loss.backward()
    gradients = [p.grad for p in t.model.parameters() if p.grad is not None]
    assert gradients
    assert all(g.abs().sum() == 0 for g in gradients)


@pytest.mark.parametrize(
    "supervision",
    [
        *(Terminal(), PerLoop(), LastN(n=2), ExitWeighted(), ExitWeighted(mix="logits")),
        *(ExitImprovement(), ExitImprovement(gate_index="before")),
    ],
)
def test_unequal_depths_equal_separate_runs(supervision: Supervision) -> None:
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
