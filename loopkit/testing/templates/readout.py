"""A readout. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from loopkit.components.readout import Readout
from loopkit.registry import register


@register("readout", "template")
class Template(Readout):
    """Multiply the state by one learned factor, so that the logits depend on its scale.

    z = exp(a) * h
    """

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.empty(()))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.log_scale)

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h * self.log_scale.exp()
