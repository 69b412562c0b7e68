"""An initial state. Dims: B sequences, T tokens, D width, S streams (optional)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from loopkit.components.start import Start, shape_with_streams
from loopkit.loop import Step
from loopkit.registry import register


@register("start", "template")
class Template(Start):
    """One learned vector as the initial state of every token.

    c_0 = v
    """

    def __init__(self, width: int, streams: int) -> None:
        super().__init__()
        self.streams = streams
        self.vector = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.vector, std=0.02)

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return self.vector.to(e.dtype).expand(shape_with_streams(e, self.streams))
