"""The path of the state: its convergence, and its projection on the first two principal components."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, first_sequences
from loopkit.loop import PAD, Batch, LoopedModelProtocol, Loops
from loopkit.registry import register


@register("probe", "trajectory", paper="arXiv:2605.26733", figures={"step_length"})
class TrajectoryProbe(Probe):
    """Distance of the state from its end point, and its path along its first two principal components.

        distance_k = ||c_k - c_K|| / ||c_K||,   step_k = ||c_k - c_{k-1}|| / ||c_K||,   K = loops

    Norms are over all tokens and channels of a sequence, means over sequences. With a stable fixed point both converge
    to 0; in a limit cycle the distance does not, and if the state drifts the step does not. The components are those of
    the first sequence's states of loops 0 to K, with tokens concatenated. Sequences whose state is not finite are
    counted and excluded. Makes passes of its own, of K loops even if the loop depends on its length.

    Args:
        loops: K, at most the model's maximum depth.
        sequences: Sequences whose distances are averaged.
    """

    def __init__(self, *, loops: PositiveInt = 100, sequences: PositiveInt = 8) -> None:
        self.loops = loops
        self.sequences = sequences
        self.depths: Sequence[int] = ()
        self.distances: list[Tensor] = []  # [K + 1] for each sequence, and so below
        self.steps: list[Tensor] = []
        self.path: Tensor | None = None  # [K + 1, 2]
        self.explained: list[float] = []
        self.not_finite = 0

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        self.depths = depths
        total = self.loops if model.max_depth is None else min(self.loops, model.max_depth)
        with torch.no_grad():
            for batch in first_sequences(batches, self.sequences):
                for row in batch.split(1):
                    self._add(_states(model, row, total))

    def _add(self, c_KN: Tensor) -> None:
        """Add the states of one sequence, with tokens and channels flattened, in fp64."""
        if not bool(c_KN.isfinite().all()):
            self.not_finite += 1
            return
        size = c_KN[-1].norm().clamp(min=1e-300)
        moved = torch.zeros(len(c_KN), dtype=torch.float64)
        moved[1:] = (c_KN[1:] - c_KN[:-1]).norm(dim=1).cpu()
        self.distances.append((c_KN - c_KN[-1]).norm(dim=1).cpu() / size.cpu())
        self.steps.append(moved / size.cpu())
        if self.path is None:
            self.path, self.explained = principal_plane(c_KN)

    def result(self) -> ProbeResult:
        excluded = {"trajectory_not_finite": self.not_finite} if self.not_finite else {}
        if self.path is None:
            return ProbeResult({}, excluded, _EXCLUDED if excluded else {})
        distance, step = torch.stack(self.distances).mean(0), torch.stack(self.steps).mean(0)
        total = len(distance) - 1
        measured = [depth for depth in sorted(self.depths) if depth <= total]
        table = {
            "loops": total,
            "distance": distance.tolist(),
            "step": step.tolist(),
            "path": self.path.tolist(),
            "explained": self.explained,
        }
        return ProbeResult(
            by_depth={"step_length": {depth: step[depth].item() for depth in measured}},
            tables={"trajectory": table} | excluded,
            units=(_EXCLUDED if excluded else {})
            | {
                "step_length": "distance that the loop moved the state, relative to the last state's norm",
                "trajectory": f"by loop from 0: distance to the state of loop {total} and step, relative to its norm; "
                "path along the first two principal components in units of the state, and their share of the variance",
            },
        )


_EXCLUDED = {"trajectory_not_finite": "sequences left out because a state of theirs is not finite"}


def _states(model: LoopedModelProtocol, batch: Batch, total: int) -> Tensor:
    """Return c_0 to c_K of one sequence without padding, ``[K + 1, N]`` in fp64."""
    t = model.run(batch, Loops.fixed(total))
    real = batch.positions[0] < PAD
    return torch.stack([t.carried(k)[0, real].flatten().double() for k in range(total + 1)])


def principal_plane(x_KN: Tensor) -> tuple[Tensor, list[float]]:
    """Project points on their first two principal components; also return each component's share of the variance.

    Shapes:
        x_KN: K points of N coordinates, usually K < N; returns ``[K, 2]`` on the CPU. Signs are such that the first
        point has no negative coordinate.
    """
    centred = x_KN - x_KN.mean(dim=0)
    variances, axes = torch.linalg.eigh(centred @ centred.T)  # K x K: N may be a hundred thousand
    largest = variances.flip(0).clamp(min=0)[:2]
    points = (axes.flip(1)[:, :2] * largest.sqrt()).cpu()
    points = points * torch.where(points[:1] < 0, -1.0, 1.0)
    shares = (largest / variances.clamp(min=0).sum().clamp(min=1e-300)).tolist()
    return points, shares
