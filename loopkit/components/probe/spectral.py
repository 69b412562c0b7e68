"""The spectral radius of one loop.

Dims: B sequences, T tokens, D width, S streams of the state, if any.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, first_sequences, passes
from loopkit.components.probe.power import STEPS, PowerIterationResult, spectral_radius
from loopkit.errors import UserError
from loopkit.loop import PAD, Batch, LoopedModelProtocol, Noise, Trajectory
from loopkit.registry import register

SEED = 0
"""Seed of the start vectors, so that figures are reproducible."""

By = Literal["sequence", "position"]


def loop_radius(
    t: Trajectory, depth: int | None = None, *, steps: int = STEPS, by: By = "sequence"
) -> PowerIterationResult:
    """Compute the spectral radius of ``c_k -> c_{k+1}`` at a state of a pass.

        rho(J),   J = d c_{k+1} / d c_k over all tokens and channels of a sequence, or of one token with others fixed

    In a causal model J is block triangular over positions, so a sequence's radius is the maximum over its positions.
    Products are with the transposed Jacobian, which has the same eigenvalues: the loop runs forward once, and each step
    is one backward pass. Padding is excluded, because it is masked for all tokens.

    Args:
        t: A pass that keeps the state at ``depth``.
        depth: k; ``None``: the last loop.
        steps: Steps of the power method.
        by: One figure per sequence, or per token; each token needs as many products as a whole sequence.

    Returns:
        ``[B]`` each, or ``[B, T]``, NaN at padding.
    """
    depth = t.reached if depth is None else depth
    with torch.enable_grad():
        c = t.carried(depth).detach().requires_grad_()
        after = t.step(c, max(depth, 1))
    real_BT = t.batch.positions < PAD
    # keyed by sequence and position, so that the split into batches does not change them
    noise = Noise(SEED, 0, sample=t.batch.sample, positions=t.batch.positions)
    start = noise.normal(*c.shape[2:]).to(c.dtype)

    def radius(active_BT: Tensor) -> PowerIterationResult:
        active = active_BT.view(*c.shape[:2], *(1,) * (c.dim() - 2))

        def apply(v: Tensor) -> Tensor:
            (product,) = torch.autograd.grad(after, c, v, retain_graph=True)
            return product * active

        return spectral_radius(apply, start * active, steps=steps)

    if by == "sequence":
        return radius(real_BT)
    one_hot_TT = torch.eye(c.shape[1], dtype=torch.bool, device=c.device)
    by_position = [radius(real_BT & one_hot_T) for one_hot_T in one_hot_TT]
    rho_BT, residual_BT = (torch.stack(parts, dim=1) for parts in zip(*by_position, strict=True))
    return PowerIterationResult(*(part.masked_fill(~real_BT, math.nan) for part in (rho_BT, residual_BT)))


@register("probe", "spectral", paper="arXiv:2605.26733", figures={"spectral_radius"})
class Spectral(Probe):
    """Spectral radius of the loop at each depth: whether one more loop amplifies a perturbation of the state.

        rho = (||J^n v|| / ||J^m v||)^(1 / (n - m)),  n = steps, m = n / 2,  J = d c_{k+1} / d c_k

    By sequence, J is over all tokens; by position, over one token with the others fixed. In a causal model the radius
    of a sequence is the maximum over its positions, which converge faster. The residual is the relative difference of
    the growth in the third and the last quarter of the steps: if it is not small, use more steps. Makes passes of its
    own.

    Args:
        steps: Products of the power method, at least 4.
        by: One radius per sequence, or per position, which multiplies the cost by the number of tokens.
        depths: Measure only at these depths of the evaluation, such as [8, 32]; null means all.
        sequences: Sequences to measure.
        length: Measure only the first tokens of each sequence; null means all.

    Paper:
        STARS, which reports the radius but trains against one random product, an estimate of ||J||_F² / n.
    """

    conformance: ClassVar[dict[str, Any]] = {"options": {"steps": 12}}

    def __init__(
        self,
        *,
        steps: PositiveInt = 200,
        by: By = "sequence",
        depths: list[PositiveInt] | None = None,
        sequences: PositiveInt = 4,
        length: PositiveInt | None = None,
    ) -> None:
        if steps < 4:
            raise UserError(f"probe 'spectral': steps is {steps}; set at least 4")
        self.steps, self.by, self.sequences, self.length = steps, by, sequences, length
        self.depths = None if depths is None else frozenset(depths)
        self.radii: dict[int, list[Tensor]] = defaultdict(list)  # [2, N] each: radii and residuals

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        depths = [depth for depth in depths if self.depths is None or depth in self.depths]
        for batch in first_sequences(batches, self.sequences) if depths else ():
            for t, served in passes(model, batch if self.length is None else batch.tokens_before(self.length), depths):
                for depth in served:
                    radius = loop_radius(t, depth, steps=self.steps, by=self.by)
                    # exclude padding by position, not by NaN: a radius of a token may be NaN
                    real = t.batch.positions < PAD if self.by == "position" else slice(None)
                    self.radii[depth].append(torch.stack([part[real].flatten() for part in radius]).cpu())

    def result(self) -> ProbeResult:
        radii = {depth: torch.cat(pairs, dim=1) for depth, pairs in sorted(self.radii.items())}
        rows = {
            depth: {"mean": rho.mean().item(), "max": rho.max().item(), "residual": residual.max().item()}
            for depth, (rho, residual) in radii.items()
        }
        return ProbeResult({"spectral_radius": rows}, units={"spectral_radius": self._unit})

    @property
    def _unit(self) -> str:
        each = "sequence" if self.by == "sequence" else "position with the others held"
        return (
            f"spectral radius of the loop after this depth, for each {each}, {self.steps} steps, dimensionless; "
            "residual is the largest relative change from the third to the last quarter of the steps"
        )
