"""Extra losses over the trajectory: the contract. Dims: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from loopkit.loop import PAD, Trajectory, widen


@dataclass(frozen=True)
class Regularized:
    """What a regularizer of several parts gives.

    Args:
        value: The unweighted fp32 scalar.
        terms: Its parts or other figures for the log, detached scalars that are means over the same as the value. The
            same names at every step and on every rank, without ``/``.
    """

    value: Tensor
    terms: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Tensor | Regularized) -> Regularized:
        """What a regularizer returned, which may be the bare value."""
        return result if isinstance(result, Regularized) else cls(result)


class Regularizer(nn.Module):
    """A scalar of the trajectory that joins the loss. It may also reach parameters, through ``t.model``.

    It has no wiring. ``t.records[k - 1]`` holds what the components of loop k left for it, of the sequences
    ``t.computed[k - 1]`` (``None``: all); a sequence counts in the loops that it ran, ``t.active(k)``.

    Attributes:
        weight: Its coefficient in the total.
        mix: ``additive`` adds weight * R; ``convex`` also takes ``weight`` away from the supervised part.
        mean_over: What R is a mean over. Micro-batches are joined by it, so that any number of them, on any number of
            ranks, gives the R of the whole batch: ``tokens`` weighs each by its real tokens, ``sequences`` equally.
            ``micro_batch`` states that R depends on which sequences are computed together.
    """

    weight: float
    mix: Literal["additive", "convex"] = "additive"
    mean_over: Literal["tokens", "sequences", "micro_batch"] = "sequences"

    def active(self, optimizer_step: int) -> bool:
        """Whether it counts at this step; where not, it is not computed and takes nothing away."""
        return True

    def forward(self, t: Trajectory) -> Tensor | Regularized:
        """The unweighted fp32 scalar, logged as it is under the regularizer's name; or that and named terms, which are
        logged as ``NAME/TERM``."""
        raise NotImplementedError


def over_tokens(values_BT: Tensor, t: Trajectory) -> Tensor:
    """Mean over all tokens that are not padding."""
    real = t.batch.positions < PAD
    return (values_BT * real).sum() / real.sum().clamp(min=1)


def over_loops(value: Callable[[int], Tensor], t: Trajectory) -> Tensor:
    """Mean of ``value(k)``, ``[B, T]``, over the loops that each sequence ran, and then over tokens."""
    total, count = torch.zeros((), device=t.e.device), torch.zeros((), device=t.e.device)
    for k in range(1, t.reached + 1):
        active_B = t.active(k)
        share = torch.ones_like(count) if active_B is None else active_B[:, None].to(count.dtype)
        total = total + share * value(k)
        count = count + share
    return over_tokens(total / count, t)


def mean_square(s: Tensor) -> Tensor:
    """``[B, T, *S, D]`` to the mean square over streams and channels, ``[B, T]``."""
    return widen(s).square().flatten(2).mean(dim=-1)
