"""A supervision. Letters: B sequences, T tokens, K loops."""

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
    """Cross-entropy of all loops, later ones weighing more.

    L = sum_k w_k CE_k,   w_k = k^power / sum_j j^power

    Args:
        power: How fast the weight rises; 0 weighs all loops alike.
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
        """``[K, B, 1]``, which add up to 1 over the loops that a sequence ran."""
        rising = torch.tensor(ks, dtype=torch.float32, device=t.batch.device)[:, None, None] ** self.power
        ran = active_KB1(t, ks)
        weight = rising.expand(-1, len(t.batch), 1) if ran is None else rising * ran
        return weight / weight.sum(dim=0)
