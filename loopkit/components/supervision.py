"""Losses over the loops of a trajectory. Dims: B sequences, T tokens, K loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.loop import Trajectory
from loopkit.registry import register


@dataclass(frozen=True)
class Supervised:
    """The result of a supervision.

    Args:
        loss: fp32 scalar to differentiate, in nats per scored token.
        ce: Cross-entropy of each loop that was read, detached scalars in nats per scored token.
        terms: Other values to log, detached scalars.
    """

    loss: Tensor
    ce: dict[int, Tensor]
    terms: dict[str, Tensor] = field(default_factory=dict)


class Supervision(nn.Module):
    """Computes one loss from a trajectory and its labels; no wiring.

    Means are over the scored tokens; without scored tokens the loss is 0. A sequence counts only in the loops that it
    ran, ``t.active(k)``. A supervision that reads ``t.gate(k)`` registers ``needs={"gate"}``.
    """

    def loops(self, total: int) -> Sequence[int]:
        """The loops, from 1, that the loss reads in a run of ``total``."""
        raise NotImplementedError

    def forward(self, t: Trajectory) -> Supervised:
        """Compute the loss.

        Args:
            t: One forward pass: ``t.nll(ks)`` is ``[K, B, T]`` in nats, 0 at tokens that are not scored.
        """
        raise NotImplementedError


def over_scored(values: Tensor, t: Trajectory) -> Tensor:
    """Mean of ``[..., B, T]`` over the scored tokens, with 0 at tokens that are not scored."""
    return values.sum(dim=(-2, -1)) / t.batch.scored.sum().clamp(min=1)


def active_KB1(t: Trajectory, ks: Sequence[int]) -> Tensor | None:
    """The sequences that ran each loop, ``[K, B, 1]`` bool; ``None``: all."""
    masks = [mask for k in ks if (mask := t.active(k)) is not None]
    return torch.stack(masks)[..., None] if masks else None


def ce_of(nll_KBT: Tensor, t: Trajectory, ks: Sequence[int]) -> dict[int, Tensor]:
    """Cross-entropy of each loop over the sequences that ran it, detached."""
    active, nll = active_KB1(t, ks), nll_KBT.detach()
    if active is None:
        return dict(zip(ks, over_scored(nll, t), strict=True))
    count = (active & t.batch.scored).sum(dim=(-2, -1)).clamp(min=1)
    return dict(zip(ks, (nll * active).sum(dim=(-2, -1)) / count, strict=True))


class _Mean(Supervision):
    """Mean cross-entropy of the loops that are read and that the sequence ran; of its last state if there are none."""

    def forward(self, t: Trajectory) -> Supervised:
        ks = self.loops(t.loops.total)
        active = active_KB1(t, ks)
        if active is None:
            nll_KBT = t.nll(ks, weight=1.0)
            return Supervised(over_scored(nll_KBT, t).mean(), ce_of(nll_KBT, t, ks))
        active[-1] |= ~active.any(dim=0)  # a sequence that stopped earlier is read at its last state
        share_KBT = (active.double() / active.sum(dim=0)).expand(-1, *t.batch.labels.shape)
        nll_KBT = t.nll(ks, weight=share_KBT)
        share_KBT = share_KBT.to(nll_KBT.dtype)
        return Supervised(over_scored((share_KBT * nll_KBT).sum(dim=0), t), ce_of(nll_KBT, t, ks))


@register("supervision", "terminal")
class Terminal(_Mean):
    """Cross-entropy of the last loop.

    L = CE_K
    """

    def __init__(self) -> None:
        super().__init__()

    def loops(self, total: int) -> Sequence[int]:
        return [total]


@register("supervision", "per_loop", paper="arXiv:2606.24898")
class PerLoop(_Mean):
    """Mean cross-entropy of all loops.

    L = 1/K sum_k CE_k
    """

    def __init__(self) -> None:
        super().__init__()

    def loops(self, total: int) -> Sequence[int]:
        return range(1, total + 1)


@register("supervision", "last_n", paper="arXiv:2605.18797")
class LastN(_Mean):
    """Mean cross-entropy of the last loops.

    L = 1/n sum_{k > K - n} CE_k

    Args:
        n: Number of last loops; all loops if a run has fewer.
    """

    def __init__(self, *, n: PositiveInt = 2) -> None:
        super().__init__()
        self.n = n

    def loops(self, total: int) -> Sequence[int]:
        return range(max(total - self.n, 0) + 1, total + 1)


@register("supervision", "exit_weighted", paper="arXiv:2510.25741", needs={"gate"})
class ExitWeighted(Supervision):
    """Weigh loops by the gate's exit distribution, and reward its entropy.

    p_k = sigmoid(g_k) prod_{j<k} (1 - sigmoid(g_j)),  the last loop takes the remaining probability
    losses:  L = mean of sum_k p_k nll_k  - entropy * H(p)
    logits:  L = mean of nll(sum_k p_k logits_k)  - entropy * H(p)

    Args:
        mix: ``losses`` as the papers say, ``logits`` as Ouro's released training code does.
        entropy: Weight of the exit distribution's entropy, in nats per nat, >= 0.
    """

    def __init__(self, *, mix: Literal["losses", "logits"] = "losses", entropy: NonNegativeFloat = 0.1) -> None:
        super().__init__()
        self.mix = mix
        self.entropy = entropy

    def loops(self, total: int) -> Sequence[int]:
        return range(1, total + 1)

    def forward(self, t: Trajectory) -> Supervised:
        ks = self.loops(t.loops.total)
        gates_KBT, active = torch.stack([t.gate(k) for k in ks]), active_KB1(t, ks)
        log_p_KBT = log_exit_distribution(mask_inactive(gates_KBT, active))
        p_KBT = log_p_KBT.exp()
        scored = t.batch.scored
        if self.mix == "losses":
            nll_KBT = t.nll(ks, weight=p_KBT.detach())
            loss = over_scored((p_KBT * nll_KBT).sum(dim=0), t)
        else:
            # the head is linear and p sums to 1, so mixing readouts is mixing logits
            z = sum(p[..., None] * t.readout(k) for p, k in zip(p_KBT, ks, strict=True))
            assert isinstance(z, Tensor)
            loss = over_scored(t.score(z, weight=1.0), t)
            with torch.no_grad():
                nll_KBT = t.nll(ks)
        entropy = over_scored(-(p_KBT * log_p_KBT).sum(dim=0) * scored, t)
        return Supervised(
            loss - self.entropy * entropy,
            ce_of(nll_KBT, t, ks),
            {"exit_entropy": entropy.detach(), "exit_mean": mean_exit(p_KBT, active, t).detach()},
        )


@register("supervision", "exit_improvement", paper="arXiv:2510.25741", needs={"gate"})
class ExitImprovement(Supervision):
    """Train only the gate, on the improvement by one more loop (Ouro's second stage).

    I_j = max(0, nll_{j-1} - nll_j),   w_j = sigmoid(k * (I_j - gamma)),   both without gradient
    L = mean over loops j = 2..K of  -w_j log(1 - sigmoid(g)) - (1 - w_j) log sigmoid(g)

    The loss of a run of one loop is 0. Set ``train.trainable: ["gate.*"]`` as well, and ``train.start_from`` to the run
    whose gate is to be trained.

    Args:
        k: Slope of the target probability of continuing, per nat, > 0.
        gamma: Improvement at which the target probability of continuing is 1/2, in nats.
        gate_index: Gate that is trained on the improvement of loop j: ``after`` that of loop j (the paper), ``before``
            that of loop j - 1, which decided to run loop j.

    Paper: It does not state k and gamma; the defaults are a third party's.
    """

    def __init__(
        self,
        *,
        k: PositiveFloat = 50.0,
        gamma: NonNegativeFloat = 0.005,
        gate_index: Literal["after", "before"] = "after",
    ) -> None:
        super().__init__()
        self.slope, self.gamma, self.gate_index = k, gamma, gate_index

    def loops(self, total: int) -> Sequence[int]:
        return range(1, total + 1)

    def forward(self, t: Trajectory) -> Supervised:
        ks = self.loops(t.loops.total)
        gates_KBT, active = torch.stack([t.gate(k) for k in ks]), active_KB1(t, ks)
        with torch.no_grad():
            nll_KBT = t.nll(ks)
            target = ((nll_KBT[:-1] - nll_KBT[1:]).clamp(min=0) - self.gamma).mul(self.slope).sigmoid()
        logits = gates_KBT[1:] if self.gate_index == "after" else gates_KBT[:-1]
        bce = F.binary_cross_entropy_with_logits(-logits, target.to(logits.dtype), reduction="none")
        share = _shares(bce, active) * t.batch.scored
        loss = over_scored((bce * share).sum(dim=0), t) + 0.0 * gates_KBT.sum()
        return Supervised(
            loss,
            ce_of(nll_KBT, t, ks),
            {
                "exit_mean": mean_exit(
                    log_exit_distribution(mask_inactive(gates_KBT, active)).exp(), active, t
                ).detach(),
                "continue_target": over_scored((target * share).sum(dim=0), t).detach(),
            },
        )


def _shares(values_KBT: Tensor, active: Tensor | None) -> Tensor:
    """Weights of the comparisons of adjacent loops; those of each sequence add up to 1."""
    if active is None:
        return torch.full_like(values_KBT, 1 / max(len(values_KBT), 1))
    active_pair = active[:-1] & active[1:]
    return active_pair.to(values_KBT.dtype) / active_pair.sum(dim=0).clamp(min=1)


def mask_inactive(gates_KBT: Tensor, active: Tensor | None) -> Tensor:
    """Exit logits with probability 0 in the loops that a sequence did not run."""
    return gates_KBT if active is None else gates_KBT.masked_fill(~active, -1e4)


def mean_exit(p_KBT: Tensor, active: Tensor | None, t: Trajectory) -> Tensor:
    """Mean loop at which a token stops, counted from the first loop of its sequence."""
    own_KB1 = torch.ones_like(p_KBT[..., :1]).cumsum(dim=0) if active is None else active.cumsum(dim=0)
    return over_scored((own_KB1 * p_KBT).sum(dim=0) * t.batch.scored, t)


def log_exit_distribution(gates_KBT: Tensor) -> Tensor:
    """Log-probability of stopping after each loop, computed in log space so that a closed gate still has a gradient.

    Args:
        gates_KBT: Exit logits; those of the last loop are unused, because it takes the remaining probability.
    """
    stay = F.logsigmoid(-gates_KBT[:-1]).cumsum(dim=0)
    reached = torch.cat([torch.zeros_like(gates_KBT[:1]), stay])
    return reached + torch.cat([F.logsigmoid(gates_KBT[:-1]), torch.zeros_like(gates_KBT[:1])])
