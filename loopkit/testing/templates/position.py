"""A position encoding. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from loopkit.components.position import Position
from loopkit.errors import UserError
from loopkit.loop import PAD
from loopkit.registry import register


@register("position", "template")
class Template(Position):
    """Sinusoidal position embedding, added to the token embedding.

    y = x + [sin(p w_i), cos(p w_i)],   w_i = base^(-2i/D)

    Args:
        base: Wavelength of the slowest pair, in units of 2 pi tokens, > 0.

    Raises:
        UserError: If the width is odd.
    """

    def __init__(self, width: int, *, base: PositiveFloat = 10000.0) -> None:
        super().__init__()
        if width % 2:
            raise UserError(f"model.width must be even, not {width}: the embedding pairs sines and cosines")
        self.width, self.base = width, base

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        exponent = torch.arange(0, self.width, 2, device=x.device, dtype=torch.float64) / self.width
        angle = positions.where(positions < PAD, 0)[..., None] * self.base**-exponent
        return x + torch.cat([angle.sin(), angle.cos()], dim=-1).to(x.dtype)
