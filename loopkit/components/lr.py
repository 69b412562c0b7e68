"""Learning rates: a pure function of the step, so a resumed run needs no state of them.

A length given as a whole number is in optimizer steps; one given as a fraction is a share of the run.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat

from loopkit.registry import Share, register


class LearningRate:
    """The learning rate at each optimizer step.

    Attributes:
        peak: Largest learning rate.
    """

    peak: float

    def at(self, step: int, num_steps: int) -> float:
        """The rate of one optimizer step.

        Args:
            step: Optimizer steps done before this one, 0 .. num_steps - 1.
            num_steps: Optimizer steps of the whole run.
        """
        raise NotImplementedError


def length_in_steps(length: int | float, num_steps: int) -> float:
    """A length in optimizer steps: whole numbers are steps, fractions a share of the run."""
    return float(length) if isinstance(length, int) else length * num_steps


class _Warmed(LearningRate):
    """Linear warm-up to the peak, then whatever ``after`` says."""

    def __init__(self, peak: float, warmup: int | float) -> None:
        self.peak, self.warmup = peak, warmup

    def at(self, step: int, num_steps: int) -> float:
        rise = length_in_steps(self.warmup, num_steps)
        if step + 1 < rise:  # the first step already moves, the last of the warm-up reaches the peak
            return self.peak * (step + 1) / rise
        return self.peak * self.after(step, rise, num_steps)

    def after(self, step: int, rise: float, num_steps: int) -> float:
        """Share of the peak at a step that the warm-up is over."""
        raise NotImplementedError


def _progress(step: int, begin: float, end: float) -> float:
    """How far a step is on its way from begin to the last step before end, within [0, 1]."""
    span = end - 1 - begin
    return min(max((step - begin) / span, 0.0), 1.0) if span > 0 else float(step > begin)


@register("lr", "constant", short="peak", lengths={"warmup"})
class Constant(_Warmed):
    """The same rate throughout, after an optional warm-up.

    Args:
        peak: Learning rate.
        warmup: Length of the linear warm-up, in optimizer steps or as a share of the run.
    """

    def __init__(self, *, peak: PositiveFloat = 3e-4, warmup: NonNegativeInt | Share = 0) -> None:
        super().__init__(peak, warmup)

    def after(self, step: int, rise: float, num_steps: int) -> float:
        return 1.0


@register("lr", "cosine", lengths={"warmup"})
class Cosine(_Warmed):
    """Half a cosine from the peak down to the floor at the last step.

    lr = peak · (floor + (1 - floor) · (1 + cos πt) / 2)

    Args:
        peak: Largest learning rate.
        warmup: Length of the linear warm-up, in optimizer steps or as a share of the run.
        floor: Rate of the last step, as a share of the peak.
    """

    def __init__(self, *, peak: PositiveFloat = 3e-4, warmup: NonNegativeInt | Share = 0, floor: Share = 0.0) -> None:
        super().__init__(peak, warmup)
        self.floor = floor

    def after(self, step: int, rise: float, num_steps: int) -> float:
        t = _progress(step, max(rise - 1, 0), num_steps)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * t)) / 2


@register("lr", "linear", lengths={"warmup"})
class Linear(_Warmed):
    """A straight line from the peak down to the floor at the last step.

    Args:
        peak: Largest learning rate.
        warmup: Length of the linear warm-up, in optimizer steps or as a share of the run.
        floor: Rate of the last step, as a share of the peak.
    """

    def __init__(self, *, peak: PositiveFloat = 3e-4, warmup: NonNegativeInt | Share = 0, floor: Share = 0.0) -> None:
        super().__init__(peak, warmup)
        self.floor = floor

    def after(self, step: int, rise: float, num_steps: int) -> float:
        return 1 - (1 - self.floor) * _progress(step, max(rise - 1, 0), num_steps)


@register("lr", "wsd", paper="arXiv:2404.06395", lengths={"warmup", "cooldown"})
class WarmupStableDecay(_Warmed):
    """Warm up, stay at the peak, cool down at the end.

    Args:
        peak: Largest learning rate.
        warmup: Length of the linear warm-up, in optimizer steps or as a share of the run.
        cooldown: Length of the decay at the end, in optimizer steps or as a share of the run.
        shape: How the rate falls: a straight line, 1 - √t, or half a cosine.
        floor: Rate of the last step, as a share of the peak.
    """

    def __init__(
        self,
        *,
        peak: PositiveFloat = 3e-4,
        warmup: NonNegativeInt | Share = 0.1,
        cooldown: NonNegativeInt | Share = 0.1,
        shape: Literal["linear", "one_minus_sqrt", "cosine"] = "linear",
        floor: Share = 0.0,
    ) -> None:
        super().__init__(peak, warmup)
        self.cooldown, self.shape, self.floor = cooldown, shape, floor

    def after(self, step: int, rise: float, num_steps: int) -> float:
        fall = length_in_steps(self.cooldown, num_steps)
        if fall <= 0:
            return 1.0
        t = _progress(step, max(num_steps - 1 - fall, rise - 1, 0), num_steps)
        shapes = {"linear": 1 - t, "one_minus_sqrt": 1 - math.sqrt(t), "cosine": (1 + math.cos(math.pi * t)) / 2}
        return self.floor + (1 - self.floor) * shapes[self.shape]
