"""An exit. Letters: B sequences, T tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.components.exit import Exit
from loopkit.loop import Trajectory
from loopkit.registry import Share, register


@register("exit", "template")
class Template(Exit):
    """Stop when the most likely token is the same as one loop before.

    c_k = 1 if argmax p_k = argmax p_{k-1}, else 0

    Args:
        threshold: Least share of tokens that agree; of a single token, anything above 0 asks that it agrees.
    """

    def __init__(self, *, threshold: Share = 0.9) -> None:
        self.threshold = threshold

    def score(self, t: Trajectory, k: int) -> Tensor:
        if k == 1:  # there is no earlier loop to agree with
            return torch.full(t.batch.tokens.shape, float("-inf"), device=t.batch.device)
        before, after = (t.logits(j).argmax(dim=-1) for j in (k - 1, k))
        return (before == after).float()
