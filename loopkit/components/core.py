"""What one loop applies. Dims: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.loop import Step
from loopkit.registry import register


class Core(nn.Module):
    """The shared part.

    Wiring: ``width``, ``block`` (builds the next block of the model; a core calls it once for each of its layers) and
    ``max_loops`` (maximum number of loops in training). The constructor may run twice while a model is built, because
    blocks receive their number; the second instance is used.

    ``step.gate(s)`` gives the exit gate's logits of any state, ``step.records`` takes what regularizers and the next
    loop (as ``step.earlier``) read. A core whose state has several streams sets ``streams`` in its constructor and
    states ``needs={"streams"}`` in its registration: then start and injection receive ``streams``, and components
    with ``lacks={"streams"}`` are refused in the same recipe.
    """

    streams: int = 0
    """Further streams S of the state: with 0 it is ``[B, T, D]``, with S ``[B, T, S, D]``."""

    def forward(self, u: Tensor, step: Step) -> Tensor:
        """What injection made, ``[B, T, *S, D]``, to the state ``s_k`` in the same shape and dtype."""
        raise NotImplementedError

    def emit(self, s: Tensor) -> Tensor:
        """``[B, T, *S, D]`` to ``[B, T, D]``: what coda, readout and gate see of the state; the mean of streams."""
        return s.mean(dim=2) if self.streams else s


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
