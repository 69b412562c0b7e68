"""The spectral radius of a loop at the trained depths."""

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
    """Estimate the spectral radius of the loop after each depth.

    Args:
        model: In evaluation mode.
        batch: A few short sequences: every step costs a backward pass of one loop.
        depths: Loops before the differentiated one; each depth is a separate pass.
        steps: Steps of the power method.
    """
    findings = []
    for depth in depths:
        with torch.no_grad():
            t = model.run(batch, Loops.fixed(depth), keep=frozenset([depth]))
        rho_B, residual_B = loop_radius(t, steps=steps)
        findings.append(SpectralRadiusFinding(depth, rho_B.mean().item(), rho_B.max().item(), residual_B.max().item()))
    return findings
