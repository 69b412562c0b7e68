"""A norm."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.registry import register


@register("norm", "template")
class Template(Norm):
    """RMSNorm with one learned gain for all channels.

    y = gain * x / sqrt(mean(x²) + eps)

    Args:
        eps: Added to the mean square, in units of x², > 0.
    """

    def __init__(self, width: int, *, eps: PositiveFloat = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.empty(()))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.gain)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.gain.dtype)  # keep fp32 under autocast
        return self.gain * x * (x.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt()
