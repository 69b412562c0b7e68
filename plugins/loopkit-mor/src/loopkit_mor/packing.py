"""Some tokens of each sequence, moved together so that the others cost nothing.

Letters: B sequences, T tokens, M slots, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from loopkit.loop import PAD, Step


@dataclass(frozen=True)
class Packing:
    """Which token stands in which slot, in the order of the sequence; the last slots of a sequence may be empty.

    Args:
        index_BM: The token of each slot; an empty slot has one that was not chosen.
        filled_BM: Whether a slot holds a chosen token.
    """

    index_BM: Tensor
    filled_BM: Tensor

    @classmethod
    def of(cls, chosen_BT: Tensor, slots: int) -> Packing:
        """Pack the chosen tokens, of which no sequence may have more than slots."""
        index = (~chosen_BT).byte().argsort(dim=1, stable=True)[:, :slots]
        return cls(index, chosen_BT.gather(1, index))

    def take(self, x_BTD: Tensor) -> Tensor:
        """``[B, T, ...]`` to ``[B, M, ...]``."""
        index = self.index_BM.view(*self.index_BM.shape, *(1,) * (x_BTD.dim() - 2))
        return x_BTD.gather(1, index.expand(-1, -1, *x_BTD.shape[2:]))

    def put(self, new_BMD: Tensor, into_BTD: Tensor) -> Tensor:
        """``into`` with the filled slots' values at their tokens."""
        values = torch.where(self.filled_BM[..., None], new_BMD.to(into_BTD.dtype), self.take(into_BTD))
        return into_BTD.scatter(1, self.index_BM[..., None].expand_as(values), values)

    def step(self, step: Step) -> Step:
        """What the blocks are told of the packed tokens: empty slots are padding, which nobody looks at."""
        positions = self.take(step.positions).masked_fill(~self.filled_BM, PAD)
        return replace(
            step,
            e=self.take(step.e),
            c=self.take(step.c),
            positions=positions,
            noise=replace(step.noise, positions=positions),
            keys=None if step.keys is None else self.take(step.keys),
            records={},
            earlier={},
        )
