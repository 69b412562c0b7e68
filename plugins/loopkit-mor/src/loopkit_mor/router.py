"""Who goes through the next loop. Letters: B sequences, T tokens, D width, K loops.

A router leaves in ``step.records`` what the losses need: ``router_logits``, ``[B, T]`` by expert choice and
``[B, T, K]`` by token choice; and by expert choice ``router_chosen``, ``router_candidates`` and ``router_left``, all
``[B, T]`` bool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loopkit.loop import PAD, Step, widen


def in_full(x: Tensor) -> AbstractContextManager[object]:
    """Without autocast, which ``meta`` does not know: a choice rounded to bf16 is another choice."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


@dataclass(frozen=True)
class Routing:
    """What a router decided for one loop.

    Args:
        chosen_BT: Who goes through it.
        weight_BT: Factor on what comes out.
        onto_BTD: What that is added to; 0 where ``whole_BT``.
        whole_BT: Whose state is what comes out, without weight or sum; ``None``: nobody's.
        slots: The most tokens of a sequence that can be chosen; ``None``: as many as there are.
    """

    chosen_BT: Tensor
    weight_BT: Tensor
    onto_BTD: Tensor
    whole_BT: Tensor | None = None
    slots: int | None = None


class ExpertChoice(nn.Module):
    """Each loop chooses its tokens, among those that the loop before chose.

    g = sigmoid(w_k u + b_k);   training: the ceil(keep_k T) tokens with the largest g;   evaluation: g > 1/2

    Which tokens are the largest depends on later ones, so training looks ahead and evaluation does not.
    ``router_balance`` teaches g to tell in advance on which side a token falls.

    Args:
        width: Channels of the state, D.
        keep: Share of a sequence's tokens that each loop computes.
        alpha: Factor on g.
    """

    def __init__(self, width: int, *, keep: Sequence[float], alpha: float) -> None:
        super().__init__()
        self.keep = tuple(keep)
        self.alpha = alpha
        self.weight = nn.Parameter(torch.empty(len(self.keep), width))
        self.bias = nn.Parameter(torch.empty(len(self.keep)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Small weights, which tell tokens apart; no loop is preferred."""
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)

    def forward(self, u: Tensor, step: Step) -> Routing:
        """``[B, T, D]`` to who goes on."""
        loop, keep = step.k - 1, self.keep[step.k - 1]
        with in_full(u):
            logits = widen(u) @ widen(self.weight[loop]) + self.bias[loop]
        candidates = step.positions < PAD
        if "router_left" in step.earlier:
            candidates = candidates & ~step.earlier["router_left"]
        slots = None
        if keep == 1:
            chosen = candidates
        elif self.training or u.is_meta:  # without numbers nothing can be asked but what is promised
            chosen, slots = self._largest(logits, candidates, step.positions < PAD, keep)
        else:
            chosen = candidates & (logits > 0)
        step.records["router_logits"] = logits
        step.records["router_candidates"] = candidates
        step.records["router_chosen"] = chosen
        step.records["router_left"] = ~chosen
        return Routing(chosen, self.alpha * logits.sigmoid(), u, slots=slots)

    @staticmethod
    def _largest(logits: Tensor, candidates: Tensor, real: Tensor, keep: float) -> tuple[Tensor, int]:
        """The share of each sequence's real tokens with the largest logits; no more than the candidates."""
        wanted_B1 = (keep * real.sum(dim=1, keepdim=True)).ceil()
        order = logits.masked_fill(~candidates, float("-inf")).argsort(dim=1, descending=True, stable=True)
        rank = order.argsort(dim=1)
        return (rank < wanted_B1) & candidates, math.ceil(keep * logits.shape[1])


class TokenChoice(nn.Module):
    """Each token chooses, before the first loop, how many it goes through.

    p = softmax(W e);   depth = argmax p;   the state of its last loop is e + alpha p_depth f(u), before that f(u)

    Args:
        width: Channels of the input, D.
        loops: Depths to choose from, K.
        alpha: Factor on p.
    """

    def __init__(self, width: int, *, loops: int, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.weight = nn.Parameter(torch.empty(loops, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Small weights, which tell tokens apart."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, u: Tensor, step: Step) -> Routing:
        """``[B, T, D]`` to who goes on; reads the input, which is the same in every loop."""
        with in_full(u):
            logits = widen(step.e) @ widen(self.weight).T
        p, depth = logits.softmax(dim=-1).max(dim=-1)
        depth = depth + 1
        chosen = (depth >= step.k) & (step.positions < PAD)
        step.records["router_logits"] = logits
        return Routing(chosen, self.alpha * p, step.e, whole_BT=depth > step.k)
