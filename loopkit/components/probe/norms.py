"""Norm of the state per token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, token_vectors
from loopkit.loop import Trajectory
from loopkit.registry import register


@register("probe", "norms", paper="arXiv:2606.24898", figures={"state_norm"})
class Norms(Probe):
    """The distribution of the state's norm over tokens.

        n = ||s_k||_2 of one token, dimensionless;  its mean, median, 99th percentile, maximum and standard deviation

    Euclidean, as in the paper; the root mean square over channels is this divided by sqrt(width). Statistics are exact:
    all norms are stored, 4 bytes per token and depth. Padding is excluded. Observes the sweep.

    Args:
        tokens: Stop after this many tokens; null means all.
    """

    def __init__(self, *, tokens: PositiveInt | None = None) -> None:
        self.tokens = tokens
        self.shareable = tokens is None  # a limit selects the first tokens of one rank
        self.norms: dict[int, list[Tensor]] = defaultdict(list)

    def observe(self, t: Trajectory, depths: Sequence[int]) -> None:
        for depth in depths:
            limit = None if self.tokens is None else self.tokens - sum(map(len, self.norms[depth]))
            if limit is None or limit > 0:
                norms = token_vectors(t.state(depth), t.batch).norm(dim=-1)
                self.norms[depth].append(norms[:limit].float().cpu())

    def share(self, depths: Sequence[int], gather: Callable[[Tensor], Tensor]) -> None:
        for depth in depths:
            self.norms[depth] = [gather(torch.cat([torch.empty(0), *self.norms[depth]]))]

    def result(self) -> ProbeResult:
        norms = {depth: torch.cat(parts).double() for depth, parts in self.norms.items() if parts}
        return ProbeResult(
            by_depth={"state_norm": {depth: summary(values) for depth, values in norms.items() if len(values)}},
            units={"state_norm": "Euclidean norm of the state per token, dimensionless"},
        )


def summary(values: Tensor) -> dict[str, float]:
    """Compute mean, median, 99th percentile, maximum and (population) standard deviation.

    Shapes:
        values: ``[N]`` with N >= 1.
    """
    ordered = values.sort().values
    return {
        "mean": ordered.mean().item(),
        "median": _quantile(ordered, 0.5),
        "p99": _quantile(ordered, 0.99),
        "max": ordered[-1].item(),
        "std": ordered.std(correction=0).item(),
    }


def _quantile(ordered: Tensor, share: float) -> float:
    """Interpolate a quantile of sorted values; ``torch.quantile`` is limited to 16 million."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return torch.lerp(ordered[below], ordered[above], position - below).item()
