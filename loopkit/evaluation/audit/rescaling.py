"""A pass whose states are replaced by multiples of themselves, cut apart, so that a loss shows what it sees of each.

Dims: B sequences, T tokens, D width, S any further streams.
"""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.loop import Trajectory

SCALES = (1, 10, 100)
"""Multiples of the natural state. A norm's eps makes scale look visible where the state is small, and drift leads to
states that are large, so one size is not enough."""

FAR = 10**6
"""A multiple at which whatever can saturate has done so."""


def differentiated(t: Trajectory) -> range:
    """Loops whose state passes gradient on to the weights that made it."""
    return range(t.loops.total - t.loops.backprop + 1, t.loops.total + 1)


def rescaled(t: Trajectory, factor: float) -> tuple[Trajectory, dict[int, Tensor]]:
    """The pass that shows ``factor`` times every state of ``t``, each state a leaf of its own.

    No gradient goes from one loop to another: what a loss does to a state through later loops is not its own view of
    that state's scale.

    Args:
        t: A pass; all its states are kept.
        factor: > 0.

    Returns:
        The pass, and its leaves by loop: ``[B, T, *S, D]``, those of the loops that carry gradient in training.
    """
    twin = Trajectory(t.model, t.batch, t.loops, e=t.e.detach(), noise=t.noise)
    twin.records, twin.computed, twin.reached = t.records, t.computed, t.reached
    leaves = {}
    for k in range(t.reached + 1):
        state = t.state(k).detach() * factor
        if k in differentiated(t):
            leaves[k] = state.requires_grad_()
        twin.keep(k, state, state if k == 0 else None)
    return twin, leaves


def slope(loss: Tensor, leaves: dict[int, Tensor]) -> float:
    """Change of a loss per unit of log scale, all states rescaled together.

        sum over loops and tokens of <dL/ds, s>

    Args:
        loss: A scalar; one that depends on no leaf gives 0.
        leaves: States.
    """
    if not loss.requires_grad or not leaves:
        return 0.0
    states = list(leaves.values())
    gradients = torch.autograd.grad(loss, states, allow_unused=True, retain_graph=True)
    return sum((g * s).sum().item() for g, s in zip(gradients, states, strict=True) if g is not None)
