"""The spectral radius of the loop at the depths of training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from loopkit.components.probe.power import STEPS
from loopkit.components.probe.spectral import loop_radius
from loopkit.evaluation.audit.findings import SpectralRadiusFinding
from loopkit.loop import Batch, LoopedModelProtocol, Loops


def radii(
    model: LoopedModelProtocol, batch: Batch, depths: Sequence[int], *, steps: int = STEPS
) -> list[SpectralRadiusFinding]:
    """Spectral radius of the loop that follows each depth.

    Args:
        model: In evaluation mode.
        batch: A few short sequences: every step costs a backward pass of one loop.
        depths: Loops that make the state where the loop is differentiated; each is a pass of its own.
        steps: Of the power method.
    """
    found = []
    for depth in depths:
        with torch.no_grad():
            t = model.run(batch, Loops.fixed(depth), keep=frozenset([depth]))
        rho_B, residual_B = loop_radius(t, steps=steps)
        found.append(SpectralRadiusFinding(depth, rho_B.mean().item(), rho_B.max().item(), residual_B.max().item()))
    return found
