"""The spectral radius of one loop. Letters: B sequences, T tokens, D width, S any further streams."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from loopkit.components.probe.power import STEPS, spectral_radius
from loopkit.evaluation.audit.findings import Radius
from loopkit.loop import PAD, Batch, LoopedModel, Loops, Trajectory

SEED = 0
"""Of the first vectors: the same model on the same data gives the same figures."""


def radii(model: LoopedModel, batch: Batch, depths: Sequence[int], *, steps: int = STEPS) -> list[Radius]:
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
        rho_B = loop_radius(t, steps=steps)
        found.append(Radius(depth, rho_B.mean().item(), rho_B.max().item()))
    return found


def loop_radius(t: Trajectory, *, steps: int = STEPS) -> Tensor:
    """Spectral radius of ``c_k -> c_{k+1}`` at the last state of a pass, for each sequence.

        rho(J),   J = d c_{k+1} / d c_k over all tokens and channels of a sequence

    The products are those of the transposed Jacobian, which has the same eigenvalues: the loop then runs once and is
    differentiated backwards again and again. Padding is cut out, since no token sees it.

    Args:
        t: A pass; its last state is kept.
        steps: Of the power method.

    Returns:
        ``[B]`` in fp64.
    """
    with torch.enable_grad():
        c = t.carried(t.reached).detach().requires_grad_()
        after = t.step(c)
    real = (t.batch.positions < PAD).view(*c.shape[:2], *(1,) * (c.dim() - 2))

    def apply(v: Tensor) -> Tensor:
        (product,) = torch.autograd.grad(after, c, v, retain_graph=True)
        return product * real

    generator = torch.Generator(c.device).manual_seed(SEED)
    start = torch.randn(c.shape, generator=generator, device=c.device, dtype=c.dtype)
    return spectral_radius(apply, start * real, steps=steps)
