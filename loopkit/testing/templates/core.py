"""A core. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.core import Core
from loopkit.loop import Step
from loopkit.registry import register


@register("core", "template", short="layers")
class Template(Core):
    """A stack of blocks whose update is scaled by a learned gate for each channel.

    s = u + sigmoid(a) * (block_L(... block_1(u)) - u)

    Args:
        layers: Number of blocks, L.
    """

    def __init__(self, width: int, block: Callable[[], Block], *, layers: PositiveInt = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.gate = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.gate)

    def forward(self, u: Tensor, step: Step) -> Tensor:
        s = u
        for block in self.blocks:
            s = block(s, step)
        return u + self.gate.sigmoid().to(u.dtype) * (s - u)
