"""Losses of a router. Letters: B sequences, T tokens, K loops."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer
from loopkit.loop import PAD, Trajectory
from loopkit.registry import register


@register("regularizer", "router_balance", paper="arXiv:2507.10524", needs={"routing"})
class RouterBalance(Regularizer):
    """Make a router keep to its shares.

    expert_choice:  R = mean over loops and candidates of BCE(g_k, whether loop k chose the token)
    token_choice:   R = K sum_i f_i P_i,  f_i the share of tokens that choose depth i, P_i their mean probability of it

    By expert choice the shares hold in training by construction; what is learnt is to tell them without looking ahead,
    as evaluation must. Loops that keep everything ask nothing. By token choice R is 1 where all depths are equally
    frequent and likely, and K where all tokens are sure of the same.

    Args:
        weight: Coefficient, dimensionless, >= 0. The paper takes 0.001 for expert choice and 0.1 for token choice.
    """

    def __init__(self, *, weight: NonNegativeFloat = 0.001) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        total, count = torch.zeros((), device=t.e.device), torch.zeros((), device=t.e.device)
        for logits, records, real in routed(t):
            if logits.dim() == 3:
                return _balance(logits[real])
            candidates, chosen = records["router_candidates"], records["router_chosen"]
            asked = candidates & (candidates != chosen).any()
            loss = F.binary_cross_entropy_with_logits(logits, chosen.to(logits.dtype), reduction="none")
            total, count = total + (loss * asked).sum(), count + asked.sum()
        return total / count.clamp(min=1)


@register("regularizer", "router_z", paper="arXiv:2507.10524", needs={"routing"})
class RouterZ(Regularizer):
    """Keep a router's logits small, so that its choices stay open.

    R = mean over loops and candidates of z²,  z the logit by expert choice, logsumexp of the logits by token choice

    Args:
        weight: Coefficient, dimensionless, >= 0.
    """

    def __init__(self, *, weight: NonNegativeFloat = 1e-5) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        total, count = torch.zeros((), device=t.e.device), torch.zeros((), device=t.e.device)
        for logits, records, real in routed(t):
            if logits.dim() == 3:
                return logits[real].logsumexp(dim=-1).square().mean()
            asked = records["router_candidates"]
            total, count = total + (logits.square() * asked).sum(), count + asked.sum()
        return total / count.clamp(min=1)


def _balance(logits_NK: Tensor) -> Tensor:
    p = logits_NK.softmax(dim=-1)
    loops = p.shape[-1]
    frequency = F.one_hot(p.argmax(dim=-1), loops).to(p.dtype).mean(dim=0)
    return loops * (frequency * p.mean(dim=0)).sum()


def routed(t: Trajectory) -> Iterator[tuple[Tensor, dict[str, Tensor], Tensor]]:
    """Logits, all records, and which tokens are real, from the last loop, which every sequence runs, to the first.

    Raises:
        ValueError: If the core leaves no routing.
    """
    for records, rows in zip(reversed(t.records), reversed(t.computed), strict=True):
        if "router_logits" not in records:
            raise ValueError("the router losses read what a core with routing leaves; this model's core leaves nothing")
        positions = t.batch.positions if rows is None else t.batch.positions[rows]
        yield records["router_logits"], records, positions < PAD
