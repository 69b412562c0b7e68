"""What one loop applies. Letters: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.loop import Step
from loopkit.registry import register


class Core(nn.Module):
    """The shared part. Wiring: ``width``, ``block`` (makes the next block of the model), ``max_loops``."""

    def forward(self, u: Tensor, step: Step) -> Tensor:
        """``[B, T, *S, D]`` to the same shape."""
        raise NotImplementedError

    def emit(self, s: Tensor) -> Tensor:
        """``[B, T, *S, D]`` to ``[B, T, D]``: what coda and readout see of the state."""
        return s


@register("core", "stack", short="layers")
class Stack(Core):
    """Blocks one after the other.

    s = block_L(... block_1(u))

    Args:
        layers: Number of blocks.
    """

    def __init__(self, block: Callable[[], Block], *, layers: PositiveInt) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(layers))

    def forward(self, u: Tensor, step: Step) -> Tensor:
        for block in self.blocks:
            u = block(u, step)
        return u
