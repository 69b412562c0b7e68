"""The spectral radius of one loop. Letters: B sequences, T tokens, D width, S any further streams."""

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
"""Of the first vectors: the same model on the same data gives the same figures."""

By = Literal["sequence", "position"]


def loop_radius(
    t: Trajectory, depth: int | None = None, *, steps: int = STEPS, by: By = "sequence"
) -> PowerIterationResult:
    """Spectral radius of ``c_k -> c_{k+1}`` at a state of a pass.

        rho(J),   J = d c_{k+1} / d c_k over all tokens and channels of a sequence, or of one token with the rest held

    In a causal model J is block triangular over positions, so a sequence's radius is the largest of its positions'.
    The products are those of the transposed Jacobian, which has the same eigenvalues: the loop then runs once and is
    differentiated backwards again and again. Padding is cut out, since no token sees it.

    Args:
        t: A pass; the state at ``depth`` is kept.
        depth: k; ``None``: the last one run.
        steps: Of the power method.
        by: One figure for each sequence, or for each token; a token's costs as many products as a whole sequence's.

    Returns:
        ``[B]`` each, or ``[B, T]``, not a number at padding.
    """
    depth = t.reached if depth is None else depth
    with torch.enable_grad():
        c = t.carried(depth).detach().requires_grad_()
        after = t.step(c, max(depth, 1))
    real_BT = t.batch.positions < PAD
    # of a sequence's own numbers, so that no split of the batch changes them
    noise = Noise(SEED, 0, sample=t.batch.sample, positions=t.batch.positions)
    start = noise.normal(*c.shape[2:]).to(c.dtype)

    def radius(seen_BT: Tensor) -> PowerIterationResult:
        seen = seen_BT.view(*c.shape[:2], *(1,) * (c.dim() - 2))

        def apply(v: Tensor) -> Tensor:
            (product,) = torch.autograd.grad(after, c, v, retain_graph=True)
            return product * seen

        return spectral_radius(apply, start * seen, steps=steps)

    if by == "sequence":
        return radius(real_BT)
    here = torch.eye(c.shape[1], dtype=torch.bool, device=c.device)
    found = [radius(real_BT & here[position]) for position in range(c.shape[1])]
    rho_BT, residual_BT = (torch.stack(parts, dim=1) for parts in zip(*found, strict=True))
    return PowerIterationResult(*(part.masked_fill(~real_BT, math.nan) for part in (rho_BT, residual_BT)))


@register("probe", "spectral", paper="arXiv:2605.26733", figures={"spectral_radius"})
class Spectral(Probe):
    """Whether one more loop magnifies a small change of the state: the spectral radius of the loop at each depth.

        rho = (||J^n v|| / ||J^m v||)^(1 / (n - m)),  n = steps, m = n / 2,  J = d c_{k+1} / d c_k

    By sequence, J is over all tokens; by position, over one token with the others held. In a causal model the radius
    of a sequence is the largest of its positions', and the latter settle sooner. ``spectral_residual`` is the relative
    difference between the third and the last quarter of the steps: where it is not small, take more steps. It makes
    passes of its own.

    Args:
        steps: Products of the power method, at least 4.
        by: One radius for each sequence, or for each position, which costs as many times more as there are tokens.
        depths: Measure at these of the evaluation's depths, such as [8, 32]; null takes all.
        sequences: Sequences to measure.
        length: Tokens of each to measure, from its beginning; null takes all.

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
            raise UserError(f"probe 'spectral': steps must be at least 4, not {steps}")
        self.steps, self.by, self.sequences, self.length = steps, by, sequences, length
        self.wanted = None if depths is None else frozenset(depths)
        self.found: dict[int, list[Tensor]] = defaultdict(list)  # [2, N] each: radii and residuals

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        depths = [depth for depth in depths if self.wanted is None or depth in self.wanted]
        for batch in first_sequences(batches, self.sequences) if depths else ():
            for t, served in passes(model, _beginning(batch, self.length), depths):
                for depth in served:
                    radius = loop_radius(t, depth, steps=self.steps, by=self.by)
                    # padding is left out by its place: a radius that is no number belongs in the result
                    real = t.batch.positions < PAD if self.by == "position" else slice(None)
                    self.found[depth].append(torch.stack([part[real].flatten() for part in radius]).cpu())

    def result(self) -> ProbeResult:
        found = {depth: torch.cat(pairs, dim=1) for depth, pairs in sorted(self.found.items())}
        rows = {
            depth: {"mean": rho.mean().item(), "max": rho.max().item(), "residual": residual.max().item()}
            for depth, (rho, residual) in found.items()
        }
        return ProbeResult({"spectral_radius": rows}, units={"spectral_radius": self._unit})

    @property
    def _unit(self) -> str:
        each = "sequence" if self.by == "sequence" else "position with the others held"
        return (
            f"spectral radius of the loop after this depth, for each {each}, {self.steps} steps, dimensionless; "
            "residual is the largest relative change from the third to the last quarter of the steps"
        )


def _beginning(batch: Batch, length: int | None) -> Batch:
    return batch if length is None else batch.tokens_before(length)
