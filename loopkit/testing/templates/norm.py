"""A norm."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.registry import register


@register("norm", "template")
class Template(Norm):
    """Divide by the root mean square, and multiply by one learned factor for all channels.

    N(x) = gain * x / sqrt(mean(x²) + eps)

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
        x = x.to(self.gain.dtype)  # under autocast a norm never narrows the stream
        return self.gain * x * (x.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt()
