"""A step for components that are called by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.loop import Loops, Noise, Step


def step_for(
    x: Tensor,
    positions: Tensor | None = None,
    *,
    k: int = 1,
    total: int = 3,
    in_order: bool = True,
    tokens: Tensor | None = None,
) -> Step:
    """The step of loop ``k`` in which ``x``, ``[B, T, D]``, is both state and input."""
    rows, length = x.shape[:2]
    places = torch.arange(length).expand(rows, length) if positions is None else positions
    noise = Noise(0, 0, torch.arange(rows), places)
    return Step(k, Loops.fixed(total), e=x, c=x, positions=places, noise=noise, in_order=in_order, tokens=tokens)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
