"""The loss of the rescaled state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated

import torch
from annotated_types import MinLen
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, first_sequences, nll, passes
from loopkit.loop import Batch, LoopedModelProtocol, Trajectory
from loopkit.registry import register

Factors = Annotated[tuple[PositiveFloat, ...], MinLen(1)]


@register("probe", "scale_sweep", paper="arXiv:2606.24898", figures={"scale_range"})
class ScaleSweep(Probe):
    """The loss if the state is multiplied by a factor.

        L(a) = mean over scored tokens of the cross-entropy of read(a * s_k)        nats
        scale_range = max L - min L over the factors                                nats

    Constant for a scale-invariant readout. The state is rescaled before coda and readout, not in the loop, and read in
    fp32 or the model's precision, whichever is higher. Makes passes of its own.

    Args:
        factors: Factors of the state.
        sequences: Sequences to measure.
    """

    def __init__(
        self,
        *,
        factors: Factors = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
        sequences: PositiveInt = 80,
    ) -> None:
        self.factors = list(factors)
        self.sequences = sequences
        self.nll: dict[int, Tensor] = defaultdict(lambda: torch.zeros(len(self.factors), dtype=torch.float64))
        self.scored = 0

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        for batch in first_sequences(batches, self.sequences):
            self.scored += int(batch.scored.sum())
            for t, served in passes(model, batch, depths):
                for depth in served:
                    self.nll[depth] += torch.tensor(self._sweep(t, depth), dtype=torch.float64)

    def _sweep(self, t: Trajectory, depth: int) -> list[float]:
        """Compute the summed loss for each factor."""
        s = t.state(depth)
        dtype = torch.promote_types(s.dtype, torch.float32)
        return [nll(t, s * factor, depth, depth, dtype).double().sum().item() for factor in self.factors]

    def result(self) -> ProbeResult:
        loss = {depth: (nll / self.scored).tolist() for depth, nll in self.nll.items()} if self.scored else {}
        return ProbeResult(
            by_depth={"scale_range": {depth: max(values) - min(values) for depth, values in loss.items()}},
            tables={
                "scale_sweep": {"factors": self.factors, "loss": {str(depth): values for depth, values in loss.items()}}
            },
            units={
                "scale_range": "spread of the loss over rescaled states, nats",
                "scale_sweep": "loss in nats per token, read from the state times each factor, by depth",
            },
        )
