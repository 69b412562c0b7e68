"""An exit. Dims: B sequences, T tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.components.exit import Exit
from loopkit.loop import Trajectory
from loopkit.registry import Share, register


@register("exit", "template")
class Template(Exit):
    """Exit when the most likely token equals that of the previous loop.

    score_k = 1 if argmax p_k = argmax p_{k-1} else 0

    Args:
        threshold: Smallest share of equal tokens at which to exit, in [0, 1].
    """

    def __init__(self, *, threshold: Share = 0.9) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        if k == 1:  # no previous loop to compare with
            return torch.full(t.batch.tokens.shape, float("-inf"), device=t.batch.device)
        previous, current = (t.logits(j).argmax(dim=-1) for j in (k - 1, k))
        return (previous == current).float()
