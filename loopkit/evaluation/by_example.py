"""What each example cost at each depth, and how often its likeliest tokens were right. Letters: B examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from loopkit.components.task import Likelihood
from loopkit.loop import Batch

Parts = list[Tensor]


@dataclass
class ByExample:
    """Sums over the scored tokens of each example, batch by batch.

    Args:
        numbers: Number of each example.
        tokens: Its scored tokens.
        nll: Their negative log-likelihood by depth, in nats, in fp64.
        right: Of them, those that are the likeliest ones, by depth; empty where that was not asked.
    """

    numbers: Parts = field(default_factory=list)
    tokens: Parts = field(default_factory=list)
    nll: dict[int, Parts] = field(default_factory=lambda: defaultdict(list))
    right: dict[int, Parts] = field(default_factory=lambda: defaultdict(list))

    def begin(self, batch: Batch) -> None:
        """Take in the examples of a batch, whose depths are then read."""
        self.numbers.append(batch.sample.cpu())
        self.tokens.append(batch.scored.sum(dim=1).cpu())

    def answers(self, depth: int, groups: Sequence[str | None]) -> list[Likelihood]:
        """The answer for each example that has a scored token, in the order of their numbers.

        Args:
            depth: In loops.
            groups: The group of every example by its number; empty where none has one.
        """
        numbers, tokens = (_whole(parts, torch.int64) for parts in (self.numbers, self.tokens))
        nll = _whole(self.nll[depth], torch.float64).tolist()
        right = _whole(self.right[depth], torch.int64).tolist() if self.right else None
        counts, names = tokens.tolist(), numbers.tolist()
        return [
            Likelihood(
                nll[i],
                counts[i],
                sequences=1,
                right=None if right is None else right[i],
                exact=None if right is None else int(right[i] == counts[i]),
                group=groups[names[i]] if groups else None,
            )
            for i in numbers.argsort(stable=True).tolist()
            if counts[i]
        ]

    def joined(self, depths: Sequence[int], gather: Callable[[Tensor], Tensor]) -> ByExample:
        """The examples of all ranks. Every rank calls this, for the same depths."""
        found = ByExample(
            [gather(_whole(self.numbers, torch.int64))],
            [gather(_whole(self.tokens, torch.int64))],
            {depth: [gather(_whole(self.nll[depth], torch.float64))] for depth in depths},
        )
        # a rank without a batch has seen no depth, and still takes part
        has_right = bool(gather(torch.tensor([len(self.right)])).any())
        if has_right:
            found.right = {depth: [gather(_whole(self.right[depth], torch.int64))] for depth in depths}
        return found


def _whole(parts: Parts, dtype: torch.dtype) -> Tensor:
    return torch.cat(parts).to(dtype) if parts else torch.empty(0, dtype=dtype)
