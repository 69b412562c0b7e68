"""Normalisation of vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.registry import register


class Norm(nn.Module):
    """Normalises the last dimension. Wiring: ``width``.

    A norm with parameters returns their dtype, so that autocast never narrows the stream.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise vectors.

        Args:
            x: ``[..., width]``: states, or queries and keys with ``width`` channels for each head.

        Returns:
            The same shape.
        """
        raise NotImplementedError


@register("norm", "rmsnorm", paper="arXiv:1910.07467")
class RMSNorm(Norm):
    """Divide by the root mean square.

    N(x) = x / sqrt(mean(x²) + eps) * gain

    Args:
        gain: Whether to learn a factor per channel, initially 1.
        eps: Added to the mean square, in units of x², > 0.
    """

    def __init__(self, width: int, *, gain: bool = True, eps: PositiveFloat = 1e-6) -> None:
        super().__init__()
        self.width = width
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width)) if gain else None

    def forward(self, x: Tensor) -> Tensor:
        if self.weight is not None:
            x = x.to(self.weight.dtype)
        return F.rms_norm(x, (self.width,), self.weight, self.eps)

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.ones_(self.weight)

    def extra_repr(self) -> str:
        return f"{self.width}, gain={self.weight is not None}, eps={self.eps}"


@register("norm", "layernorm", paper="arXiv:1607.06450")
class LayerNorm(Norm):
    """Subtract the mean and divide by the standard deviation.

    N(x) = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias

    Args:
        gain: Whether to learn a factor per channel, initially 1.
        bias: Whether to learn an offset per channel, initially 0; ignored without ``gain``.
        eps: Added to the variance, in units of x², > 0.
    """

    def __init__(self, width: int, *, gain: bool = True, bias: bool = True, eps: PositiveFloat = 1e-5) -> None:
        super().__init__()
        self.width = width
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width)) if gain else None
        self.bias = nn.Parameter(torch.zeros(width)) if gain and bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.weight is not None:
            x = x.to(self.weight.dtype)
        return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"{self.width}, gain={self.weight is not None}, bias={self.bias is not None}, eps={self.eps}"
