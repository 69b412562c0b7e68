"""A supervision. Dims: B sequences, T tokens, K loops."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from loopkit.components.supervision import Supervised, Supervision, active_KB1, ce_of, over_scored
from loopkit.loop import Trajectory
from loopkit.registry import register


@register("supervision", "template")
class Template(Supervision):
    """Cross-entropy of all loops, with larger weights for later loops.

    L = sum_k w_k CE_k,   w_k = k^power / sum_j j^power

    Args:
        power: Exponent of the weights, >= 0; 0 for equal weights.
    """

    def __init__(self, *, power: NonNegativeFloat = 1.0) -> None:
        super().__init__()
        self.power = power

    def loops(self, total: int) -> Sequence[int]:
        return range(1, total + 1)

    def forward(self, t: Trajectory) -> Supervised:
        ks = self.loops(t.loops.total)
        weight = self._weights(t, ks)
        nll_KBT = t.nll(ks, weight=weight.expand(-1, *t.batch.labels.shape))
        return Supervised(over_scored((weight * nll_KBT).sum(dim=0), t), ce_of(nll_KBT, t, ks))

    def _weights(self, t: Trajectory, ks: Sequence[int]) -> Tensor:
        """Weights ``[K, B, 1]`` that sum to 1 over the loops of a sequence."""
        active = active_KB1(t, ks)
        if active is None:
            active = torch.ones(len(ks), len(t.batch), 1, dtype=torch.bool, device=t.batch.device)
        own_loop = active.cumsum(dim=0)  # a sequence of fewer loops starts later
        weight = own_loop.float() ** self.power * active
        return weight / weight.sum(dim=0)
