"""Whether the loss depends on the scale of the state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, nll
from loopkit.loop import Trajectory
from loopkit.registry import register


@dataclass
class _Sums:
    fraction: float = 0.0
    tokens: int = 0
    scale: float = 0.0
    scored: int = 0


@register("probe", "radial", paper="arXiv:2606.24898", figures={"radial_fraction", "scale_gradient"})
class Radial(Probe):
    """Component of the immediate loss's gradient along the state, and derivative of the loss by the state's scale.

        g               = dL_k / ds_k           L_k: cross-entropy read from loop k, s_k held fixed
        radial_fraction = mean over tokens of |<g, s>| / (||g|| ||s||)       0 to 1
        scale_gradient  = sum over tokens of <g, s> = dL_k / d log||s_k||    nats, L_k averaged over tokens

    Both are 0 for a scale-invariant readout: no loss at that loop can control the norm (the paper's Lemma 1). Computed
    in fp64, because rounding in fp32 already gives 1e-8. Tokens without a gradient have no direction and are excluded
    from the fraction. Observes the sweep.

    Args:
        at: Read each loop as in a run of the model's training depth, like the training loss, or as the last loop of a
            run. They differ for readouts that treat the last loop differently.
        tokens: Stop after about this many tokens, because fp64 is slow.

    Paper:
        arXiv:2606.24898. Its script is not released; this follows the definition in the text.
    """

    def __init__(self, *, at: Literal["trained", "last"] = "trained", tokens: PositiveInt = 4096) -> None:
        self.at = at
        self.tokens = tokens
        self.sums: dict[int, _Sums] = defaultdict(_Sums)

    def observe(self, t: Trajectory, depths: Sequence[int]) -> None:
        for depth in depths:
            sums = self.sums[depth]
            if sums.scored < self.tokens:
                at = max(depth, t.model.max_loops) if self.at == "trained" else depth
                _measure(t, depth, at, sums)

    def result(self) -> ProbeResult:
        return ProbeResult(
            by_depth={
                "radial_fraction": {k: s.fraction / s.tokens for k, s in self.sums.items() if s.tokens},
                "scale_gradient": {k: s.scale / s.scored for k, s in self.sums.items() if s.scored},
            },
            units={
                "radial_fraction": "share of the loss's gradient along the state, 0 to 1",
                "scale_gradient": "change of the loss per unit of log state norm, nats",
            },
        )


def _measure(t: Trajectory, k: int, at: int, sums: _Sums) -> None:
    with torch.enable_grad():
        s = t.state(k).detach().double().requires_grad_()
        # the sum, because the mean is taken over all batches
        (gradient,) = torch.autograd.grad(nll(t, s, k, at, torch.float64).sum(), s)
    share, along = alignment(gradient, s.detach())
    directed = share.isfinite()
    sums.fraction += share[directed].sum().item()
    sums.tokens += int(directed.sum())
    sums.scale += along.sum().item()
    sums.scored += int(t.batch.scored.sum())


def alignment(gradient: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the component of a gradient along the state, for each token.

    Shapes:
        gradient, s: ``[B, T, *S, D]``. Returns |<g, s>| / (||g|| ||s||), not finite where either is zero, and <g, s>,
        both ``[B, T]``.
    """
    g_BTD, s_BTD = gradient.flatten(2), s.flatten(2)
    along = (g_BTD * s_BTD).sum(-1)
    return along.abs() / (g_BTD.norm(dim=-1) * s_BTD.norm(dim=-1)), along
