"""Count the floating-point operations of an optimizer step from its loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from loopkit.components.supervision import Supervision
from loopkit.model import LoopedModel, count_flops

MAX_COUNTED_LOOPS = 8
"""Loops that are counted individually; later loops cost as much as the last of them."""


class StepFlops:
    """Count the operations of optimizer steps.

    Args:
        model: The model; it is counted on ``meta``.
        supervision: Determines which loops have a readout.
        length: Tokens in a sequence.
        max_loops: Most loops of a step.
    """

    def __init__(self, model: LoopedModel, supervision: Supervision, *, length: int, max_loops: int) -> None:
        self._flops = count_flops(model, min(max_loops, MAX_COUNTED_LOOPS), length)
        self._num_readouts = cache(lambda total: len(supervision.loops(total)))

    def per_token(self, total: int, backprop: int) -> float:
        """Return the FLOPs of one token, forward and backward; a differentiated part costs three times its forward.

        Args:
            total: Loops run.
            backprop: Number of the last loops that carry gradient.
        """
        return self._differentiated(total) + self._loops(1, total) + 2 * self._loops(total - backprop + 1, total)

    def forward(self, first: int, last: int) -> float:
        """Return the FLOPs of one token in loops ``first`` to ``last``, forward only: the cost of recomputing them."""
        return self._loops(first, last)

    @property
    def outside(self) -> float:
        """FLOPs of one token outside the loops, forward only: prelude and one readout."""
        return self._flops.prelude + self._flops.read

    def step(self, loops: Sequence[tuple[int, int]], tokens: int) -> float:
        """Return the FLOPs of an optimizer step, over all ranks.

        Args:
            loops: For each draw, the number of loops and the number of those that carry gradient.
            tokens: Its real tokens.
        """
        return tokens * sum(self.per_token(total, backprop) for total, backprop in loops) / len(loops)

    def _differentiated(self, total: int) -> float:
        """FLOPs of prelude and readouts, which are always differentiated."""
        return 3 * (self._flops.prelude + self._num_readouts(total) * self._flops.read)

    def _loops(self, first: int, last: int) -> float:
        per_loop = self._flops.loops
        return sum(per_loop[min(k, len(per_loop)) - 1] for k in range(first, last + 1))
