"""A shared matrix with low-rank updates for each loop. Dims: K loops, I inputs, O outputs, R rank, Q rows of a role."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from loopkit.errors import UserError


class CurrentLoop:
    """The index of the running loop. The block sets it; its matrices, which receive no ``Step``, read it."""

    def __init__(self) -> None:
        self.k = 0


class Difference(nn.Module):
    """A low-rank update of a matrix for each loop, initialised to zero.

    scale * B_k A_k

    Args:
        inputs: Columns, I.
        outputs: Rows, Q.
        rank: R.
        loops: K. One stacked tensor holds all loops, so a compiled block does not depend on their number.
        scale: Factor on the product.
    """

    def __init__(self, inputs: int, outputs: int, *, rank: int, loops: int, scale: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.empty(loops, rank, inputs))
        self.b = nn.Parameter(torch.empty(loops, outputs, rank))
        self.scale = scale
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise ``A`` like ``nn.Linear`` and ``B`` to zero, so that training starts from the shared matrix."""
        bound = 1 / math.sqrt(self.a.shape[-1])
        nn.init.uniform_(self.a, -bound, bound)
        nn.init.zeros_(self.b)

    def forward(self, x: Tensor, k: int) -> Tensor:
        """The update of the rows of a role in loop ``k`` (from 1), ``[..., I] -> [..., Q]``."""
        return self.scale * F.linear(F.linear(x, self.a[k - 1]), self.b[k - 1])

    def extra_repr(self) -> str:
        loops, rank, inputs = self.a.shape
        return f"{inputs} -> {self.b.shape[1]}, rank={rank}, loops={loops}, scale={self.scale:g}"


class PerLoopLinear(nn.Linear):
    """The shared matrix, under its name, with the updates of its roles.

    y = W x + b;   y[rows of a role] += update of that role and loop

    Args:
        shared: The linear layer that provides weight and bias.
        loop: Index of the running loop.
    """

    def __init__(self, shared: nn.Linear, loop: CurrentLoop) -> None:
        nn.Module.__init__(self)  # not nn.Linear's, which would create a weight
        self.in_features, self.out_features = shared.in_features, shared.out_features
        self.weight, self.bias = shared.weight, shared.bias
        self.differences = nn.ModuleDict()
        self.rows: dict[str, slice] = {}
        self._loop = loop

    def add(self, role: str, rows: slice, *, rank: int, loops: int, scale: float) -> None:
        """Add an update of the rows of a role.

        Raises:
            UserError: If the rank exceeds the number of rows or columns.
        """
        count = rows.stop - rows.start
        if rank > min(count, self.in_features):
            raise UserError(
                f"block 'lora': rank {rank} exceeds '{role}', which is {count} x {self.in_features}; "
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
