"""A position. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from loopkit.components.position import Position
from loopkit.loop import PAD
from loopkit.registry import register


@register("position", "template")
class Template(Position):
    """Sines and cosines of the position, added once to the embedding.

    x + [sin(p w_i), cos(p w_i)],   w_i = base^(-2i/D)

    Args:
        base: Wavelength of the slowest pair in units of 2 pi tokens, > 0.
    """

    def __init__(self, width: int, *, base: PositiveFloat = 10000.0) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"position: sines and cosines come in pairs, so the width must be even, not {width}")
        self.width, self.base = width, base

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        exponent = torch.arange(0, self.width, 2, device=x.device, dtype=torch.float64) / self.width
        angle = positions.where(positions < PAD, 0)[..., None] * self.base**-exponent
        return x + torch.cat([angle.sin(), angle.cos()], dim=-1).to(x.dtype)
