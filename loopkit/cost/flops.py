"""Floating-point operations of an optimizer step, from the loops that it runs and differentiates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from loopkit.components.supervision import Supervision
from loopkit.model import LoopedModel, count_flops

COUNTED = 8
"""Loops that are counted one by one; later ones cost what the last of these costs."""


class StepFlops:
    """Count the operations of optimizer steps.

    Args:
        model: The model; it is counted on ``meta``.
        supervision: Which loops are read.
        length: Tokens in a sequence.
        most: Most loops of a step.
    """

    def __init__(self, model: LoopedModel, supervision: Supervision, *, length: int, most: int) -> None:
        self._flops = count_flops(model, min(most, COUNTED), length)
        self._reads = cache(lambda total: len(supervision.loops(total)))

    def per_token(self, total: int, backprop: int) -> float:
        """Forward and backward of one token: each differentiated part costs three times its forward.

        Args:
            total: Loops run.
            backprop: The last of them that carry gradient.
        """
        return self._differentiated(total) + self._loops(1, total) + 2 * self._loops(total - backprop + 1, total)

    def forward(self, first: int, last: int) -> float:
        """One token through loops ``first`` to ``last``, forward alone: what recomputing them costs."""
        return self._loops(first, last)

    @property
    def outside(self) -> float:
        """One token outside of the loops: prelude and one readout, forward alone."""
        return self._flops.prelude + self._flops.read

    def step(self, loops: Sequence[tuple[int, int]], tokens: int) -> float:
        """All operations of an optimizer step, over all ranks.

        Args:
            loops: Of each draw, how many loops run and how many of them carry gradient.
            tokens: Its real tokens.
        """
        return tokens * sum(self.per_token(total, backprop) for total, backprop in loops) / len(loops)

    def _differentiated(self, total: int) -> float:
        """Prelude and readouts, which are always differentiated."""
        return 3 * (self._flops.prelude + self._reads(total) * self._flops.read)

    def _loops(self, first: int, last: int) -> float:
        known = self._flops.loops
        return sum(known[min(k, len(known)) - 1] for k in range(first, last + 1))
