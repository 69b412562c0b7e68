"""Consistency between a run of few long steps and one of many short steps. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import numpy as np
from pydantic import NonNegativeFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer, mean_square, over_tokens
from loopkit.components.schedule import Schedule
from loopkit.loop import Loops, Trajectory, widen
from loopkit.registry import Factory, register, use


@register("regularizer", "shortcut_consistency", paper="arXiv:2602.11451", uses_total=True)
class ShortcutConsistency(Regularizer):
    """Penalise the cross-entropy of a shorter run, and the distance of its last state from that of the long run.

    R = ce * mean over tokens of NLL(short) + mean over tokens and channels of (s_short - stop_gradient(s_long))²

    Unscored tokens have an NLL of 0. The short run depends only on the seed and the optimizer step, so all ranks and
    micro-steps use the same one. It is never longer than the long run, and uses the same truncated backpropagation.

    Args:
        weight: Coefficient of both terms, dimensionless, >= 0.
        ce: Weight of the cross-entropy relative to the distance, >= 0.
        short: Schedule of the number and times of the loops of the short run.
    """

    mean_over = "tokens"

    def __init__(
        self,
        *,
        weight: NonNegativeFloat = 0.1,
        ce: NonNegativeFloat = 1.0,
        short: Factory[Schedule] = use("shortcut"),
    ) -> None:
        super().__init__()
        self.weight = weight
        self.ce = ce
        self.short = short()

    def forward(self, t: Trajectory) -> Tensor:
        loops = self.draw(t)
        short = t.rerun(loops)
        distance = widen(short.state(loops.total)) - widen(t.state(t.reached)).detach()
        loss = over_tokens(mean_square(distance), t)
        if self.ce == 0:
            return loss
        return loss + self.ce * over_tokens(short.nll([loops.total])[0], t)

    def draw(self, t: Trajectory) -> Loops:
        """Draw the loops of the short run of a batch."""
        # the counter differs from those that the trainer uses at this step
        key = [t.noise.seed % 2**64, t.noise.step]
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 1, 0]))
        total = min(int(self.short.draw(rng, 1)[0]), t.loops.total)
        return Loops(total, min(total, t.loops.backprop), times=self.short.times(rng, total))
