"""How the next token is chosen. Letters: B sequences, V vocabulary."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from loopkit.errors import UserError
from loopkit.loop import Noise

_STREAM = 2**31
"""A stream of random numbers that no loop has."""


@dataclass(frozen=True)
class Sampling:
    """The rule by which tokens are drawn.

    The random number of a token belongs to (seed, sample, position), so the rest of the batch has no say in it.

    Args:
        temperature: Divides the logits, >= 0; 0 takes the likeliest token.
        top_p: Draw from the smallest set of likeliest tokens whose probability reaches this, 0 < top_p <= 1.
        seed: Of the draws, and of a random start of the loop.

    Raises:
        ValueError: If a number is out of its range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature must be at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p must be above 0 and at most 1, not {self.top_p}")

    def choose(self, logits: Tensor, sample: Tensor, positions: Tensor) -> Tensor:
        """The next token of each sequence.

        Args:
            logits: ``[B, V]`` fp32.
            sample: ``[B]`` int64, number of each sequence.
            positions: ``[B]`` int64, place of the token that is chosen.

        Returns:
            ``[B]`` int64.
        """
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        probability, order = (logits.double() / self.temperature).softmax(dim=-1).sort(dim=-1, descending=True)
        before = probability.cumsum(dim=-1) - probability  # what the likelier tokens hold together
        inside = probability.where(before < self.top_p, 0.0)
        noise = Noise(self.seed, 0, sample=sample, positions=positions[:, None]).fold(_STREAM)
        target = noise.uniform()[:, 0, None] * inside.sum(dim=-1, keepdim=True)
        place = (inside.cumsum(dim=-1) <= target).sum(dim=-1)
        # rounding may put the target past the last token that can be drawn
        last = (inside > 0).sum(dim=-1) - 1
        return order.gather(1, torch.minimum(place, last)[:, None])[:, 0]


GREEDY = Sampling()
