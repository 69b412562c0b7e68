"""The least precision in which losses and logits are computed."""

from __future__ import annotations

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Return the same numbers in fp32, or in fp64 if they are."""
    return x if x.dtype == torch.float64 else x.float()
