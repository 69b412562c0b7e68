"""An evaluation divided among ranks: the batches of each rank, and the reduction of their sums."""

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

    Rank r scores batches r, r + world, ... Each batch equals the batch of a single process, so only the order of the
    additions differs, and these are in fp64.

    Args:
        rank: This rank, from 0.
        world: Number of ranks.
        in_step: Whether every rank must make the same number of passes, as under ZeRO-3.
    """

    rank: int = 0
    world: int = 1
    in_step: bool = False

    def own(self, batches: Iterable[T]) -> Iterable[T]:
        """Return the batches of this rank."""
        return islice(batches, self.rank, None, self.world)

    def num_dummy_passes(self, batches: int) -> int:
        """Return the number of dummy passes after which every rank has made equally many."""
        if not self.in_step:
            return 0
        return -(-batches // self.world) - len(range(self.rank, batches, self.world))

    def reduce(self, sums: DepthSweep, probes: Sequence[Probe], depths: Sequence[int]) -> DepthSweep:
        """Return the sums of all ranks, and merge the probes' observations. Every rank calls this."""
        if self.world == 1:
            return sums
        order = sorted(sums.nll)
        nll = _all_reduce([sums.nll[depth] for depth in order])
        tokens, batches, core_calls = map(int, _all_reduce([sums.tokens, sums.batches, sums.core_calls]))
        for probe in probes:
            probe.share(depths, _all_gather)
        greedy = None if sums.greedy is None else _reduce_greedy(sums.greedy, order)
        by_example = None if sums.by_example is None else sums.by_example.gather(order, _all_gather)
        return DepthSweep(dict(zip(order, nll, strict=True)), greedy, by_example, tokens, batches, core_calls)

    def gather(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of all ranks: JSON values under distinct keys. Every rank calls this."""
        if self.world == 1:
            return dict(own)
        # one line of JSON per rank instead of pickled objects, which could run code
        encoded = np.frombuffer(f"{json.dumps(own)}\n".encode(), dtype=np.uint8).copy()
        lines = _all_gather(torch.from_numpy(encoded)).numpy().tobytes().decode().splitlines()
        return {key: value for line in lines for key, value in json.loads(line).items()}


ALONE = EvaluationShard()


def can_be_shared(settings: EvaluateConfig) -> bool:
    """Whether ranks can share every probe of an evaluation."""
    return not unshareable(settings)


def unshareable(settings: EvaluateConfig) -> list[str]:
    """Return the names of the probes that only one rank can run."""
    return [name for name, spec in settings.probes.items() if not spec.build().shareable]


def _all_reduce(values: Sequence[float]) -> list[float]:
    """Return the elementwise sums over ranks, in fp64."""
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    sums: list[float] = total.tolist()
    return sums


def _reduce_greedy(greedy: Greedy, order: Sequence[int]) -> Greedy:
    counts = [greedy.sequences, *(part[depth] for part in (greedy.right, greedy.exact) for depth in order)]
    sequences, *by_depth = map(int, _all_reduce(counts))
    right, exact = by_depth[: len(order)], by_depth[len(order) :]
    return Greedy(dict(zip(order, right, strict=True)), dict(zip(order, exact, strict=True)), sequences)


def _all_gather(values: Tensor) -> Tensor:
    """Concatenate one-dimensional tensors of different lengths in the order of ranks."""
    sizes = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    sizes[dist.get_rank()] = len(values)
    dist.all_reduce(sizes)
    padded = torch.zeros(int(sizes.max()), dtype=values.dtype)
    padded[: len(values)] = values
    parts = [torch.zeros_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes.tolist(), strict=True)])
