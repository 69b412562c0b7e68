"""A core with several streams, to check the components around it. Dims: S streams, D width."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.core import Core
from loopkit.loop import Step
from loopkit.registry import register


@register("core", "kit_streams", needs={"streams"})
class StreamCore(Core):
    """A block reads the mean of the streams, and each stream takes a learned share of its update.

    s_i = u_i + a_i * (block(mean(u)) - mean(u))

    Args:
        streams: Number of streams, S.
    """

    def __init__(self, block: Callable[[], Block], *, streams: PositiveInt = 2) -> None:
        super().__init__()
        self.streams = streams
        self.blocks = nn.ModuleList([block()])
        self.share = nn.Parameter(torch.empty(streams, 1))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.share.copy_(torch.linspace(0.5, 1.5, self.streams)[:, None])

    def forward(self, u: Tensor, step: Step) -> Tensor:
        mean = u.mean(dim=2)
        update = self.blocks[0](mean, step) - mean
        return u + self.share.to(u.dtype) * update[:, :, None]
