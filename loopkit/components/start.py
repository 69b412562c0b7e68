"""The state before the first loop. Dims: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.loop import Step
from loopkit.registry import register


class Start(nn.Module):
    """Makes ``c_0``, the state before the first loop.

    Wiring: ``width`` and ``streams`` (further streams of the core's state; 0: none). A start that cannot have streams
    states ``lacks={"streams"}``. Random ones draw from ``step.noise`` and from nothing else, and state ``noise=True``.
    """

    def forward(self, e: Tensor, step: Step) -> Tensor:
        """What the prelude made, ``[B, T, D]``, to ``[B, T, D]``, or ``[B, T, S, D]`` with streams, in its dtype."""
        raise NotImplementedError


def shape_with_streams(e: Tensor, streams: int) -> tuple[int, ...]:
    """The shape of a state with this many further streams, from that of the input ``[B, T, D]``."""
    return (*e.shape[:2], *((streams,) if streams else ()), e.shape[-1])


@register("start", "embedding")
class FromEmbedding(Start):
    """The prelude's output, in every stream.

    c_0 = e
    """

    def __init__(self, streams: int = 0) -> None:
        super().__init__()
        self.streams = streams

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return e.unsqueeze(2).expand(shape_with_streams(e, self.streams)) if self.streams else e


@register("start", "zeros", ignores_input=True)
class Zeros(Start):
    """Zero, so that the first loop sees the input only through the injection.

    c_0 = 0
    """

    def __init__(self, streams: int = 0) -> None:
        super().__init__()
        self.streams = streams

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return e.new_zeros(shape_with_streams(e, self.streams))


@register("start", "normal", paper="arXiv:2502.05171", noise=True, ignores_input=True)
class Normal(Start):
    """Gaussian noise, fixed by (seed, optimizer step, sample, position), independent for each stream.

    c_0 ~ N(0, std²),   with ``truncate``: given that |c_0| <= truncate * std

    Args:
        std: Standard deviation before truncation, in units of the state, > 0.
        truncate: Largest absolute value, in units of ``std``, > 0. ``None``: the Gaussian is not truncated.

    Paper: Huginn truncates at 3 and has a standard deviation of sqrt(2 / (5 width)), times its embedding's scale of
    sqrt(width): sqrt(2 / 5), about 0.6325, at every width.
    """

    def __init__(self, streams: int = 0, *, std: PositiveFloat = 1.0, truncate: PositiveFloat | None = None) -> None:
        super().__init__()
        self.streams = streams
        self.std = std
        self.truncate = truncate

    def forward(self, e: Tensor, step: Step) -> Tensor:
        trailing = shape_with_streams(e, self.streams)[2:]
        if self.truncate is None:
            return (self.std * step.noise.normal(*trailing)).to(e.dtype)
        # a uniform number within the share of the Gaussian that is kept, through the inverse of its distribution
        mass = math.erf(self.truncate / math.sqrt(2))
        z = math.sqrt(2) * torch.erfinv(mass * (2 * step.noise.uniform(*trailing) - 1))
        return (self.std * z).to(e.dtype)
