"""What one loop does with the state's scale. Dims: N tokens, D channels of all streams."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from loopkit.components.probe import token_vectors
from loopkit.components.probe.update import Update
from loopkit.evaluation.audit.findings import Motion
from loopkit.evaluation.audit.rescaling import SCALES
from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.loop import Loops

MANY = 30
"""Loops over which growth is measured, as in the paper's check of its Lemma 2."""


@torch.no_grad()
def motion(subject: AuditSubject, *, many: int = 0) -> Motion | None:
    """How a rescaled state leaves the next loop.

    Args:
        subject: What is audited.
        many: Also follow the state over this many loops, if not 0.

    Returns:
        ``None`` where there is no second loop.
    """
    model = subject.model
    total = max(subject.loops.total, 2)
    if min(model.max_loops, total if model.max_depth is None else model.max_depth) < 2:
        return None
    total = total if model.max_depth is None else min(total, model.max_depth)
    seen = {scale: _through(subject, total - 1, scale) for scale in SCALES}
    parts = {scale: split(before, after) for scale, (before, _, after) in seen.items()}
    low, high = ([rms(v).mean().item() for v in seen[scale]] for scale in SCALES[-2:])
    return Motion(
        state_rms=rms(seen[1][0]).mean().item(),
        power=_power(low, high, 2),
        power_of_carry=_power(low, high, 1),
        kept=(high[2] - low[2]) / (high[0] - low[0]) if high[0] > low[0] else 0.0,
        radial={scale: radial.mean().item() for scale, (radial, _, _) in parts.items()},
        angular={scale: angular.mean().item() for scale, (_, angular, _) in parts.items()},
        turn={scale: turn.mean().item() for scale, (_, _, turn) in parts.items()},
        lemma_2=_growth(subject, many) if many else None,
    )


def _power(low: list[float], high: list[float], place: int) -> float:
    """Growth of a size against that of the state, both as logarithms; 0 where there is nothing that could grow."""
    if min(low[0], low[place], high[place]) <= 0:
        return 0.0
    return math.log(high[place] / low[place]) / math.log(high[0] / low[0])


def _through(subject: AuditSubject, k: int, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """``factor`` times ``s_k``, what is carried of it, and ``s_{k+1}``, all ``[N, D]``."""

    def rescale(s: Tensor, loop: int) -> Tensor:
        return s * factor if loop == k else s

    t = subject.model.run(subject.batch, Loops.fixed(k + 1), intervene=rescale)
    before, carried, after = (token_vectors(s, subject.batch) for s in (t.state(k), t.carried(k), t.state(k + 1)))
    return before, carried, after


def split(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The update of a loop along and across the state, and how far it turns the state.

        u = s / rms(s),  b = s' - s:   radial = <u, b> / D,   angular = rms(b - radial u),   turn = rms(u' - u)

    Shapes:
        before, after: ``[N, D]``; returns three ``[N]``, in units of the state's RMS value, the turn from 0 to 2.
    """
    u = before / rms(before)[:, None].clamp(min=1e-300)
    b = after - before
    radial = (u * b).mean(-1)
    turn = rms(after / rms(after)[:, None].clamp(min=1e-300) - u)
    return radial, rms(b - radial[:, None] * u), turn


def rms(v: Tensor) -> Tensor:
    """Root mean square over channels, ``[N, D] -> [N]``."""
    return v.square().mean(-1).sqrt()


def _growth(subject: AuditSubject, loops: int) -> dict[str, float] | None:
    """Both sides of Lemma 2 over many loops, by the probe that measures it; ``None`` where too few loops can run."""
    probe = Update(loops=loops, burn_in=loops // 3)
    probe.run(subject.model, [subject.batch], [subject.loops.total])
    lemma_2 = probe.result().tables.get("lemma_2")
    return None if lemma_2 is None else {name: float(lemma_2[name]) for name in ("growth", "radial_update")}
