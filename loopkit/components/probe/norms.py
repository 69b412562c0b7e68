"""How large the state is, per token."""

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
    """The distribution over tokens of the state's length.

        n = ||s_k||_2 of one token, dimensionless;  its mean, median, 99th percentile, maximum and standard deviation

    Euclidean, as the paper prints it: the root mean square over channels is this divided by sqrt(width). Exact, not
    estimated: all norms are kept until the end, 4 bytes per token and depth. Padding is left out. It rides on the
    sweep.

    Args:
        tokens: Stop after this many tokens; null means all that are evaluated.
    """

    def __init__(self, *, tokens: PositiveInt | None = None) -> None:
        self.tokens = tokens
        self.shareable = tokens is None  # the first so many tokens are those of one rank
        self.seen: dict[int, list[Tensor]] = defaultdict(list)

    def observe(self, t: Trajectory, depths: Sequence[int]) -> None:
        for depth in depths:
            left = None if self.tokens is None else self.tokens - sum(map(len, self.seen[depth]))
            if left is None or left > 0:
                norms = token_vectors(t.state(depth), t.batch).norm(dim=-1)
                self.seen[depth].append(norms[:left].float().cpu())

    def share(self, depths: Sequence[int], gather: Callable[[Tensor], Tensor]) -> None:
        for depth in depths:
            self.seen[depth] = [gather(torch.cat([torch.empty(0), *self.seen[depth]]))]

    def result(self) -> ProbeResult:
        seen = {depth: torch.cat(parts).double() for depth, parts in self.seen.items() if parts}
        return ProbeResult(
            by_depth={"state_norm": {depth: summary(norms) for depth, norms in seen.items() if len(norms)}},
            units={"state_norm": "Euclidean norm of the state per token, dimensionless"},
        )


def summary(values: Tensor) -> dict[str, float]:
    """Mean, median, 99th percentile, maximum and (population) standard deviation.

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
    """The linearly interpolated quantile of sorted values; ``torch.quantile`` refuses more than 16 million."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return torch.lerp(ordered[below], ordered[above], place - below).item()
