"""A short run that must arrive where the long one did. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

import numpy as np
from pydantic import NonNegativeFloat
from torch import Tensor

from loopkit.components.regularizer import Regularizer, mean_square, over_tokens
from loopkit.components.schedule import Schedule
from loopkit.loop import Loops, Trajectory, widen
from loopkit.registry import Factory, register, use


@register("regularizer", "shortcut_consistency", paper="arXiv:2602.11451")
class ShortcutConsistency(Regularizer):
    """Run the batch again in fewer, longer steps, and ask for the same last state and for a loss as low.

    R = mean over tokens of ce * NLL(short), 0 where nothing is scored, and mean over tokens and channels of
    (s_short - stop_gradient(s_long))², added

    The short run is drawn from the seed and the optimizer step alone, so every rank and micro-step takes the same one.
    It is never longer than the run that is trained, and as many of its last loops carry gradient.

    Args:
        weight: Coefficient of both terms, dimensionless, >= 0.
        ce: Weight of the short run's cross-entropy beside its distance, >= 0.
        short: How many loops the short run has, and when.
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
        """The short run of a batch."""
        # a counter far from those of the trainer's own draws of the same step
        key = [t.noise.seed % 2**64, t.noise.step]
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 1, 0]))
        total = min(int(self.short.draw(rng, 1)[0]), t.loops.total)
        return Loops(total, min(total, t.loops.backprop), times=self.short.times(rng, total))
