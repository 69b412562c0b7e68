"""Packing of the chosen tokens of each sequence. Dims: B sequences, T tokens, M slots, D width."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from loopkit.loop import PAD, Step


@dataclass(frozen=True)
class Packing:
    """The token of each slot, in the order of the sequence; the last slots of a sequence may be empty.

    Args:
        index_BM: Index of the token of each slot; an empty slot has the index of a token that was not chosen.
        filled_BM: Whether a slot holds a chosen token.
    """

    index_BM: Tensor
    filled_BM: Tensor

    @classmethod
    def of(cls, chosen_BT: Tensor, num_slots: int) -> Packing:
        """Pack the chosen tokens; ``num_slots`` must be at least their number in each sequence."""
        index = (~chosen_BT).byte().argsort(dim=1, stable=True)[:, :num_slots]
        return cls(index, chosen_BT.gather(1, index))

    def take(self, x_BTD: Tensor) -> Tensor:
        """Gather ``[B, T, ...]`` into ``[B, M, ...]``."""
        index = self.index_BM.view(*self.index_BM.shape, *(1,) * (x_BTD.dim() - 2))
        return x_BTD.gather(1, index.expand(-1, -1, *x_BTD.shape[2:]))

    def put(self, new_BMD: Tensor, into_BTD: Tensor) -> Tensor:
        """Scatter the values of the filled slots into a copy of ``into``."""
        values = torch.where(self.filled_BM[..., None], new_BMD.to(into_BTD.dtype), self.take(into_BTD))
        return into_BTD.scatter(1, self.index_BM[..., None].expand_as(values), values)

    def step(self, step: Step) -> Step:
        """The step of the packed tokens; empty slots are padding."""
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
