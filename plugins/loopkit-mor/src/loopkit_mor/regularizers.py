"""Losses of a router. Dims: B sequences, T tokens, K loops."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer
from loopkit.errors import UserError
from loopkit.loop import Trajectory
from loopkit.registry import register


@register("regularizer", "router_balance", paper="arXiv:2507.10524", needs={"routing"})
class RouterBalance(Regularizer):
    """Balance a router.

    expert_choice:  R = mean over sequences of the mean over loops and candidates of BCE(g_k, 1 if loop k
                    chose the token else 0)
    token_choice:   R = K sum_i f_i P_i,  f_i the share of tokens that choose depth i, P_i their mean probability of it

    With expert choice, training selects the shares by top-k, and this loss trains the router to predict the choice
    causally for evaluation; loops that keep all tokens do not contribute. With token choice, R is 1 if all depths are
    equally frequent and likely, and K if all tokens choose the same one; it depends on the micro-batch.

    Args:
        weight: Coefficient, dimensionless, >= 0. The paper uses 0.001 for expert choice and 0.1 for token choice.
    """

    def __init__(self, *, weight: NonNegativeFloat = 0.001) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        means = _SequenceMeans(t)
        for logits, records, real, rows in routed(t):
            if logits.dim() == 3:
                return _balance(logits[real])
            candidates, chosen = records["router_candidates"] & real, records["router_chosen"]
            counted = candidates & (candidates != chosen).any(dim=1, keepdim=True)
            loss = F.binary_cross_entropy_with_logits(logits, chosen.to(logits.dtype), reduction="none")
            means.add(loss, counted, rows)
        return means.mean()


@register("regularizer", "router_z", paper="arXiv:2507.10524", needs={"routing"})
class RouterZ(Regularizer):
    """Penalise large logits of a router (z-loss).

    R = mean over sequences of the mean over loops and candidates of z²,  z = logit for expert choice; for token choice
    z = logsumexp of the logits, and the candidates are all tokens

    Args:
        weight: Coefficient, dimensionless, >= 0.
    """

    def __init__(self, *, weight: NonNegativeFloat = 1e-5) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        means = _SequenceMeans(t)
        for logits, records, real, rows in routed(t):
            if logits.dim() == 3:
                means.add(logits.logsumexp(dim=-1).square(), real, rows)
                break
            means.add(logits.square(), records["router_candidates"] & real, rows)
        return means.mean()


class _SequenceMeans:
    """Mean over sequences of the mean of each sequence, so that the micro-batches of a step add up to the value of the
    batch."""

    def __init__(self, t: Trajectory) -> None:
        self.total_B = torch.zeros(len(t.batch), device=t.e.device)
        self.count_B = torch.zeros(len(t.batch), device=t.e.device)

    def add(self, values_BT: Tensor, counted_BT: Tensor, rows: Tensor) -> None:
        """Add the counted values of some sequences."""
        values_BT = values_BT.where(counted_BT, 0).to(self.total_B.dtype)
        self.total_B = self.total_B.index_add(0, rows, values_BT.sum(dim=1))
        self.count_B = self.count_B.index_add(0, rows, counted_BT.sum(dim=1).to(self.count_B.dtype))

    def mean(self) -> Tensor:
        return (self.total_B / self.count_B.clamp(min=1)).mean()


def _balance(logits_NK: Tensor) -> Tensor:
    p = logits_NK.softmax(dim=-1)
    loops = p.shape[-1]
    frequency = F.one_hot(p.argmax(dim=-1), loops).to(p.dtype).mean(dim=0)
    return loops * (frequency * p.mean(dim=0)).sum()


def routed(t: Trajectory) -> Iterator[tuple[Tensor, dict[str, Tensor], Tensor, Tensor]]:
    """Yield logits, all records, the mask of counted tokens and the sequence indices, from the last loop to the first.

    Padding does not count, nor does a sequence that is computed before its first loop.

    Raises:
        UserError: If the core has no router.
    """
    for k in range(len(t.records), 0, -1):
        records, rows = t.records[k - 1], t.computed[k - 1]
        if "router_logits" not in records:
            raise UserError(
                "the router losses need a core with a router, such as token_routed; this core records no routing"
            )
        rows = torch.arange(len(t.batch), device=t.e.device) if rows is None else rows
        yield records["router_logits"], records, t.own_loop(k)[rows] > 0, rows
