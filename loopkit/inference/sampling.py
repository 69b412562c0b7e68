"""Sampling of the next token.

Dims: B sequences, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from loopkit.errors import UserError
from loopkit.loop import Noise

STREAM = 2**31
"""Stream of random numbers that is distinct from those of the loops."""


@dataclass(frozen=True)
class Sampling:
    """The rule by which tokens are drawn.

    The random number of a token is keyed by (seed, sample, position), so it does not depend on the rest of the batch.

    Args:
        temperature: Divides the logits, >= 0; 0 selects the most likely token.
        top_p: Draw from the smallest set of most likely tokens whose probability reaches this, 0 < top_p <= 1.
        seed: Of the draws, and of a random start of the loop.
        top_k: Draw from this many most likely tokens, >= 1; None: all.
        min_p: Draw from tokens at least this share as likely as the most likely one, 0 to 1.

    A token must satisfy all three limits.

    Raises:
        UserError: If a number is out of its range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int | None = None
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature must be at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k must be at least 1, not {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p must be 0 to 1, not {self.min_p}")

    def choose(self, logits: Tensor, sample: Tensor, positions: Tensor) -> Tensor:
        """Choose the next token of each sequence.

        Args:
            logits: ``[B, V]`` fp32.
            sample: ``[B]`` int64, key of each sequence's random numbers.
            positions: ``[B]`` int64, position of the chosen token.

        Returns:
            ``[B]`` int64.
        """
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        return self.draw(self.probabilities(logits), sample, positions)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each token under this rule, ``[..., V]`` fp64; greedy puts all on one token.

        Args:
            logits: ``[..., V]`` fp32.
        """
        if self.temperature == 0:
            return F.one_hot(logits.argmax(dim=-1), logits.shape[-1]).double()
        probability, order = (logits.double() / self.temperature).softmax(dim=-1).sort(dim=-1, descending=True)
        before = probability.cumsum(dim=-1) - probability  # total probability of the more likely tokens
        allowed = (before < self.top_p) & (probability >= self.min_p * probability[..., :1])
        if self.top_k is not None:
            allowed[..., self.top_k :] = False
        nucleus = probability.where(allowed, 0.0)
        nucleus = nucleus / nucleus.sum(dim=-1, keepdim=True)
        return torch.zeros_like(nucleus).scatter(-1, order, nucleus)

    def draw(self, weights: Tensor, sample: Tensor, positions: Tensor, *, stream: int = STREAM) -> Tensor:
        """Draw a token of each sequence.

        Args:
            weights: ``[B, V]`` fp64, >= 0; probabilities up to a factor.
            sample: ``[B]`` int64, key of each sequence's random numbers.
            positions: ``[B]`` int64, position of the drawn token.
            stream: Draws of different streams are independent.

        Returns:
            ``[B]`` int64.
        """
        weights, order = weights.sort(dim=-1, descending=True)
        noise = Noise(self.seed, 0, sample=sample, positions=positions[:, None]).fold(stream)
        target = noise.uniform()[:, 0, None] * weights.sum(dim=-1, keepdim=True)
        index = (weights.cumsum(dim=-1) <= target).sum(dim=-1)
        # rounding may put the target past the last token that can be drawn
        last = (weights > 0).sum(dim=-1).clamp(min=1) - 1
        return order.gather(1, torch.minimum(index, last)[:, None])[:, 0]


GREEDY = Sampling()
