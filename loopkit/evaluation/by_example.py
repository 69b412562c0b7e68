"""Loss and accuracy of each example at each depth.

Dims: B examples.
"""

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
        right: Scored tokens that the model ranks first, by depth; empty if accuracy is not measured.
    """

    numbers: Parts = field(default_factory=list)
    tokens: Parts = field(default_factory=list)
    nll: dict[int, Parts] = field(default_factory=lambda: defaultdict(list))
    right: dict[int, Parts] = field(default_factory=lambda: defaultdict(list))

    def add_batch(self, batch: Batch) -> None:
        """Add the examples of a batch; the caller then appends their sums for each depth."""
        self.numbers.append(batch.sample.cpu())
        self.tokens.append(batch.scored.sum(dim=1).cpu())

    def answers(self, depth: int, groups: Sequence[str | None]) -> list[Likelihood]:
        """Return the answer for each example that has a scored token, in the order of their numbers.

        Args:
            depth: In loops.
            groups: The group of every example, indexed by its number; empty if examples have no groups.
        """
        numbers, tokens = (_concat(parts, torch.int64) for parts in (self.numbers, self.tokens))
        nll = _concat(self.nll[depth], torch.float64).tolist()
        right = _concat(self.right[depth], torch.int64).tolist() if self.right else None
        counts, ids = tokens.tolist(), numbers.tolist()
        return [
            Likelihood(
                nll[i],
                counts[i],
                sequences=1,
                right=None if right is None else right[i],
                exact=None if right is None else int(right[i] == counts[i]),
                group=groups[ids[i]] if groups else None,
            )
            for i in numbers.argsort(stable=True).tolist()
            if counts[i]
        ]

    def gather(self, depths: Sequence[int], gather: Callable[[Tensor], Tensor]) -> ByExample:
        """Return the examples of all ranks. Every rank calls this with the same depths."""
        result = ByExample(
            [gather(_concat(self.numbers, torch.int64))],
            [gather(_concat(self.tokens, torch.int64))],
            {depth: [gather(_concat(self.nll[depth], torch.float64))] for depth in depths},
        )
        # a rank without a batch has no depths, but must join the collectives
        has_right = bool(gather(torch.tensor([len(self.right)])).any())
        if has_right:
            result.right = {depth: [gather(_concat(self.right[depth], torch.int64))] for depth in depths}
        return result


def _concat(parts: Parts, dtype: torch.dtype) -> Tensor:
    return torch.cat(parts).to(dtype) if parts else torch.empty(0, dtype=dtype)
