"""A shared matrix that differs from loop to loop. Letters: K loops, I inputs, O outputs, R rank, Q rows of a role."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Loop:
    """Which loop is running: the block says so, and its matrices, which are handed no step, read it."""

    def __init__(self) -> None:
        self.k = 0


class Difference(nn.Module):
    """A matrix of low rank for each loop; zero until it is trained.

    scale * B_k A_k

    Args:
        inputs: Columns, I.
        outputs: Rows, Q.
        rank: R.
        loops: K; one stacked tensor holds all loops, so that a compiled block does not depend on their number.
        scale: Factor on the product.
    """

    def __init__(self, inputs: int, outputs: int, *, rank: int, loops: int, scale: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.empty(loops, rank, inputs))
        self.b = nn.Parameter(torch.empty(loops, outputs, rank))
        self.scale = scale
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """``A`` as a linear layer of as many inputs begins, ``B`` zero: training begins at the shared matrix."""
        bound = 1 / math.sqrt(self.a.shape[-1])
        nn.init.uniform_(self.a, -bound, bound)
        nn.init.zeros_(self.b)

    def forward(self, x: Tensor, k: int) -> Tensor:
        """What loop ``k`` (from 1) adds to the rows of its role, ``[..., I] -> [..., Q]``."""
        return self.scale * F.linear(F.linear(x, self.a[k - 1]), self.b[k - 1])

    def extra_repr(self) -> str:
        loops, rank, inputs = self.a.shape
        return f"{inputs} -> {self.b.shape[1]}, rank={rank}, loops={loops}, scale={self.scale:g}"


class PerLoopLinear(nn.Linear):
    """The shared matrix under its old name, and the differences of its roles.

    y = W x + b;   y[rows of a role] += difference of that role and loop

    Args:
        shared: A plain linear layer, whose weight and bias this one takes over.
        loop: Says which loop is running.
    """

    def __init__(self, shared: nn.Linear, loop: Loop) -> None:
        nn.Module.__init__(self)  # not Linear's: the weight is there already
        self.in_features, self.out_features = shared.in_features, shared.out_features
        self.weight, self.bias = shared.weight, shared.bias
        self.differences = nn.ModuleDict()
        self.rows: dict[str, slice] = {}
        self._loop = loop

    def add(self, role: str, rows: slice, *, rank: int, loops: int, scale: float) -> None:
        """Give the rows of a role a difference.

        Raises:
            ValueError: If the rank is more than the rows or columns, so that no rank would be saved.
        """
        count = rows.stop - rows.start
        if rank > min(count, self.in_features):
            raise ValueError(
                f"block 'lora': rank {rank} is more than '{role}' has, which is {count} x {self.in_features}; "
                f"set rank to {min(count, self.in_features)} or less"
            )
        self.differences[role] = Difference(self.in_features, count, rank=rank, loops=loops, scale=scale)
        self.rows[role] = rows

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        for role, difference in self.differences.items():
            rows = self.rows[role]
            y = y + F.pad(difference(x, self._loop.k), (rows.start, self.out_features - rows.stop))
        return y
