"""An evaluation shared out among ranks: who scores which batches, and how their sums become one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from loopkit.evaluation.depth_sweep import DepthSweep, Greedy

if TYPE_CHECKING:
    from loopkit.components.probe import Probe
    from loopkit.recipe.format import EvaluateConfig

T = TypeVar("T")


@dataclass(frozen=True)
class EvaluationShard:
    """The part of an evaluation that one rank does.

    Rank r scores batches r, r + world, ...: each batch is the one that a single process would have scored, so only the
    order of additions differs, and these are in fp64.

    Args:
        rank: Which rank, from 0.
        world: How many share the evaluation.
        in_step: Whether every rank must make the same number of passes, as under ZeRO-3.
    """

    rank: int = 0
    world: int = 1
    in_step: bool = False

    def own(self, batches: Iterable[T]) -> Iterable[T]:
        """The batches of this rank."""
        return islice(batches, self.rank, None, self.world)

    def missing(self, batches: int) -> int:
        """Passes that this rank makes for company only, so that all make as many."""
        if not self.in_step:
            return 0
        return -(-batches // self.world) - len(range(self.rank, batches, self.world))

    def joined(self, found: DepthSweep, probes: Sequence[Probe], depths: Sequence[int]) -> DepthSweep:
        """The sums of all ranks; probes take in what those of other ranks saw. Every rank calls this."""
        if self.world == 1:
            return found
        order = sorted(found.nll)
        nll = _summed([found.nll[depth] for depth in order])
        tokens, batches, core_calls = map(int, _summed([found.tokens, found.batches, found.core_calls]))
        for probe in probes:
            probe.share(depths, _gathered)
        greedy = None if found.greedy is None else _joined_greedy(found.greedy, order)
        by_example = None if found.by_example is None else found.by_example.joined(order, _gathered)
        return DepthSweep(dict(zip(order, nll, strict=True)), greedy, by_example, tokens, batches, core_calls)

    def pooled(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of all ranks, which are plain JSON values under keys of their own. Every rank calls this."""
        if self.world == 1:
            return dict(own)
        # JSON without line ends, a line for each rank; nothing is unpickled
        sent = np.frombuffer(f"{json.dumps(own)}\n".encode(), dtype=np.uint8).copy()
        lines = _gathered(torch.from_numpy(sent)).numpy().tobytes().decode().splitlines()
        return {key: value for line in lines for key, value in json.loads(line).items()}


ALONE = EvaluationShard()


def can_be_shared(settings: EvaluateConfig) -> bool:
    """Whether every probe of an evaluation can be shared out."""
    return not unshareable(settings)


def unshareable(settings: EvaluateConfig) -> list[str]:
    """The probes of an evaluation that cannot be shared out, by name."""
    return [name for name, spec in settings.probes.items() if not spec.build().shareable]


def _summed(values: Sequence[float]) -> list[float]:
    """The sum of every rank, number by number, in fp64."""
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    summed: list[float] = total.tolist()
    return summed


def _joined_greedy(greedy: Greedy, order: Sequence[int]) -> Greedy:
    counts = [greedy.sequences, *(part[depth] for part in (greedy.right, greedy.exact) for depth in order)]
    sequences, *rest = map(int, _summed(counts))
    right, exact = rest[: len(order)], rest[len(order) :]
    return Greedy(dict(zip(order, right, strict=True)), dict(zip(order, exact, strict=True)), sequences)


def _gathered(values: Tensor) -> Tensor:
    """A one-dimensional tensor of every rank, joined in the order of ranks."""
    sizes = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    sizes[dist.get_rank()] = len(values)
    dist.all_reduce(sizes)
    most = int(sizes.max())
    padded = torch.zeros(most, dtype=values.dtype)
    padded[: len(values)] = values
    parts = [torch.zeros_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes.tolist(), strict=True)])
