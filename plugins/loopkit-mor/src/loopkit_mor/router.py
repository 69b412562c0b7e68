"""Routers: the tokens of the next loop. Dims: B sequences, T tokens, D width, K loops.

A router writes the inputs of its losses to ``step.records``: ``router_logits``, ``[B, T]`` for expert choice and
``[B, T, K]`` for token choice; expert choice adds ``router_chosen``, ``router_candidates`` and ``router_left``, all
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


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Disable autocast, because rounding logits to bf16 changes the choice; ``meta`` has no autocast."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


@dataclass(frozen=True)
class Routing:
    """The decision of a router for one loop.

    Args:
        chosen_BT: Whether a token runs the loop.
        weight_BT: Factor on the output of the blocks.
        residual_BTD: Added to the weighted output.
        unweighted_BT: Tokens whose new state is the output itself; ``None``: no token.
        num_slots: Upper bound on the chosen tokens of a sequence; ``None``: count them.
    """

    chosen_BT: Tensor
    weight_BT: Tensor
    residual_BTD: Tensor
    unweighted_BT: Tensor | None = None
    num_slots: int | None = None


class ExpertChoice(nn.Module):
    """Each loop chooses its tokens among those of the previous loop.

    g = sigmoid(w_k u + b_k);   training: the ceil(keep_k T) tokens with the largest g;   evaluation: g > 1/2

    The top-k choice of training depends on later tokens; the threshold of evaluation is causal. ``router_balance``
    trains g to predict the choice.

    Args:
        width: Channels of the state, D.
        keep: Share of the tokens of a sequence that each loop computes in training.
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
        """Initialise with small weights, so that tokens differ, and zero biases."""
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)

    def forward(self, u: Tensor, step: Step) -> Routing:
        """Choose the tokens of a loop from its input, ``[B, T, D]``."""
        loop, keep = step.k - 1, self.keep[step.k - 1]
        with without_autocast(u):
            logits = widen(u) @ widen(self.weight[loop]) + self.bias[loop]
        candidates = step.positions < PAD
        if "router_left" in step.earlier:
            candidates = candidates & ~step.earlier["router_left"]
        num_slots = None
        if keep == 1:
            chosen = candidates
        elif self.training or u.is_meta:  # meta has no values to compare
            chosen, num_slots = self._top_k(logits, candidates, step.positions < PAD, keep)
        else:
            chosen = candidates & (logits > 0)
        step.records["router_logits"] = logits
        step.records["router_candidates"] = candidates
        step.records["router_chosen"] = chosen
        step.records["router_left"] = ~chosen
        return Routing(chosen, self.alpha * logits.sigmoid(), u, num_slots=num_slots)

    @staticmethod
    def _top_k(logits: Tensor, candidates: Tensor, real: Tensor, keep: float) -> tuple[Tensor, int]:
        """The candidates among the share ``keep`` of tokens with the largest logits, and a bound on their number."""
        count_B1 = (keep * real.sum(dim=1, keepdim=True)).ceil()
        order = logits.masked_fill(~candidates, float("-inf")).argsort(dim=1, descending=True, stable=True)
        rank = order.argsort(dim=1)
        return (rank < count_B1) & candidates, math.ceil(keep * logits.shape[1])


class TokenChoice(nn.Module):
    """Each token chooses its number of loops before the first loop.

    p = softmax(W e);   depth = argmax p;   s = f(u) for k < depth, e + alpha p_depth f(u) for k = depth

    Args:
        width: Channels of the input, D.
        loops: Largest depth, K.
        alpha: Factor on p.
    """

    def __init__(self, width: int, *, loops: int, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.weight = nn.Parameter(torch.empty(loops, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise with small weights, so that tokens differ."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, u: Tensor, step: Step) -> Routing:
        """Choose the tokens of a loop from ``step.e``, which is the same in every loop."""
        with without_autocast(u):
            logits = widen(step.e) @ widen(self.weight).T
        p, depth = logits.softmax(dim=-1).max(dim=-1)
        depth = depth + 1
        chosen = (depth >= step.k) & (step.positions < PAD)
        step.records["router_logits"] = logits
        return Routing(chosen, self.alpha * p, step.e, unweighted_BT=depth > step.k)
