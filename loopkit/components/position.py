"""How tokens know their order. Dims: B sequences, T tokens, D width, H heads, R channels of a head."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.errors import UserError
from loopkit.loop import PAD
from loopkit.registry import register


class Position(nn.Module):
    """Marks the order of tokens at two places: once on the embedding, and on queries and keys in every attention.

    Wiring: ``width``, ``max_length``. One instance serves the whole model. Padding carries ``PAD``; its encoding
    is never used, but must be finite.

    Attributes:
        limit: Number of positions that can be marked; ``None``: any.
    """

    limit: int | None = None

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """``[B, T, D]``, before the prelude."""
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys ``[B, H, T, R]``, before they meet and before keys are cached."""
        return q, k


@register("position", "none")
class NoPosition(Position):
    """No mark: a causal model still learns order from how far each token can see."""

    def __init__(self) -> None:
        super().__init__()


@register("position", "learned", paper="arXiv:1706.03762")
class Learned(Position):
    """A learned vector for each position, added once to the embedding.

    x + table[position]
    """

    def __init__(self, width: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_length, width)
        self.limit = max_length

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        real = positions < PAD
        if positions.device.type == "cpu":  # elsewhere the check would wait for the device, and its kernel checks too
            last = int(positions.masked_fill(~real, 0).max()) if positions.numel() else 0
            if last >= self.table.num_embeddings:
                raise UserError(
                    f"position {last} is past the {self.table.num_embeddings} learned positions; "
                    "use shorter sequences or a longer data.length"
                )
        return x + self.table(positions.where(real, 0)).to(x.dtype)


@register("position", "rope", paper="arXiv:2104.09864")
class Rope(Position):
    """Rotate pairs of channels of queries and keys by an angle that grows with the position.

    (a, b) -> (a cos t - b sin t, b cos t + a sin t),   t = position * base^(-2i/R)

    Args:
        base: Wavelength of the slowest pair in units of 2 pi tokens, > 0.
        pairing: ``halves`` pairs channel i with i + R/2 (Llama, Ouro), ``interleaved`` 2i with 2i + 1 (GPT-J, Huginn).
    """

    def __init__(self, *, base: PositiveFloat = 10000.0, pairing: Literal["halves", "interleaved"] = "halves") -> None:
        super().__init__()
        self.base = base
        self.pairing = pairing

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        size = q.shape[-1]
        if size % 2:
            raise UserError(f"rope pairs the channels of a head, so the head size must be even, not {size}")
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32  # bf16 cannot tell far positions apart
        exponent = torch.arange(0, size, 2, device=q.device, dtype=wide) / size
        angle = positions.to(wide)[:, None, :, None] * self.base**-exponent
        cos, sin = angle.cos(), angle.sin()
        return self._turn(q, cos, sin), self._turn(k, cos, sin)

    def _turn(self, x_BHTR: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x_BHTR.to(cos.dtype)
        if self.pairing == "halves":
            a, b = x.chunk(2, dim=-1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        else:
            a, b = x[..., 0::2], x[..., 1::2]
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
        return turned.to(x_BHTR.dtype)

    def extra_repr(self) -> str:
        return f"base={self.base:g}, pairing={self.pairing}"
