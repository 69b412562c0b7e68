"""Radial and angular updates of the state in one loop."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, first_sequences, token_vectors
from loopkit.loop import Batch, LoopedModelProtocol, Loops
from loopkit.registry import register

_COLUMNS = ("state_rms", "radial_update", "angular_update", "update_rms", "growth", "angular_step")


@register(
    "probe",
    "update",
    paper="arXiv:2606.24898",
    figures={"radial_update", "angular_update", "angular_step"},
)
class Update(Probe):
    """Radial and angular components of each loop's update, beyond the training depth.

        u = s_{k-1} / ||s_{k-1}||_rms          b = s_k - s_{k-1}          ||v||_rms = sqrt(mean over channels of v²)
        radial_update  = <u, b> / D            angular_update = ||b - radial_update u||_rms
        growth         = ||s_k||_rms - ||s_{k-1}||_rms
        angular_step   = ||u_k - u_{k-1}||_rms                            0 (same direction) to 2 (opposite)

    Means over tokens; s_0 is the state before the first loop. All in RMS units, so that a branch with unit channels has
    norm 1 at any width. By Lemma 2, if the core depends only on the direction of the state, s grows by radial_update
    per loop and turns by angular_update / s: the table ``lemma_2`` contains both sides, averaged over the later loops.
    Makes passes of its own.

    Args:
        loops: Loops to run, at most the model's maximum depth.
        settle: Loops left out of the averages of ``lemma_2``, while the state is still small.
        sequences: Sequences to measure.

    Paper:
        arXiv:2606.24898, its check on 30 loops; it reports <u, b> without the division by D.
    """

    def __init__(self, *, loops: PositiveInt = 30, settle: PositiveInt = 10, sequences: PositiveInt = 40) -> None:
        self.loops = loops
        self.settle = settle
        self.sequences = sequences
        self.sums: dict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys((*_COLUMNS, "turn_times_rms"), 0.0))
        self.tokens: dict[int, int] = defaultdict(int)
        self.depths: Sequence[int] = ()

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        self.depths = depths
        total = max(self.loops, *depths)
        if model.max_depth is not None:
            total = min(total, model.max_depth)
        for batch in first_sequences(batches, self.sequences):
            for k, before, after in _pairs(model, batch, total):
                self._add(k, before, after)

    def _add(self, k: int, before: Tensor, after: Tensor) -> None:
        """Add the states before and after one loop, ``[N, D]`` in fp64."""
        size = before.shape[-1]
        old, new = _rms(before), _rms(after)
        moving = (old > 0) & (new > 0)  # a zero state has no direction
        before, after, old, new = before[moving], after[moving], old[moving], new[moving]
        u, b = before / old[:, None], after - before
        radial = (u * b).sum(-1) / size
        turn = _rms(after / new[:, None] - u)
        values = {
            "state_rms": new,
            "radial_update": radial,
            "angular_update": _rms(b - radial[:, None] * u),
            "update_rms": _rms(b),
            "growth": new - old,
            "angular_step": turn,
            "turn_times_rms": turn * old,
        }
        for name, value in values.items():
            self.sums[k][name] += value.sum().item()
        self.tokens[k] += int(moving.sum())

    def _mean(self, k: int, name: str) -> float:
        return self.sums[k][name] / self.tokens[k]

    def result(self) -> ProbeResult:
        measured = [k for k in sorted(self.sums) if self.tokens[k]]
        by_depth = {
            name: {k: self._mean(k, name) for k in measured if k in self.depths}
            for name in ("radial_update", "angular_update", "angular_step")
        }
        by_loop = [{"loop": k} | {name: self._mean(k, name) for name in _COLUMNS} for k in measured]
        tables: dict[str, Any] = {"update": by_loop}
        if late := [k for k in measured if k > self.settle]:
            names = ("growth", "radial_update", "turn_times_rms", "angular_update")
            means = {name: math.fsum(self._mean(k, name) for k in late) / len(late) for name in names}
            tables["lemma_2"] = {"loops": [late[0], late[-1]]} | means
        return ProbeResult(by_depth, tables, _UNITS)


_UNITS = {
    "radial_update": "update of one loop along the state, RMS over channels, dimensionless",
    "angular_update": "update of one loop across the state, RMS over channels, dimensionless",
    "angular_step": "change of the state's direction in one loop, RMS, 0 to 2",
    "update": "means over tokens by loop; state_rms, update_rms and growth in RMS units",
    "lemma_2": "growth should equal radial_update, turn_times_rms should equal angular_update, RMS units",
}


def _pairs(model: LoopedModelProtocol, batch: Batch, total: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the states before and after each loop of a run of ``total`` loops."""
    t = model.run(batch, Loops.fixed(total))
    after = token_vectors(t.state(0), batch)
    for k in range(1, total + 1):
        before, after = after, token_vectors(t.state(k), batch)
        yield k, before, after


def _rms(v: Tensor) -> Tensor:
    """Root mean square over channels, ``[N, D] -> [N]``."""
    return v.square().mean(-1).sqrt()
