"""What of the state's scale the losses see."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.components.probe import nll
from loopkit.components.probe.radial import alignment
from loopkit.components.regularizer import Regularized, Regularizer
from loopkit.evaluation.audit.findings import Pull, View
from loopkit.evaluation.audit.rescaling import FAR, SCALES, differentiated, rescaled, slope
from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.loop import Trajectory


def views(subject: AuditSubject, t: Trajectory) -> list[View]:
    """The supervised readouts, each by itself.

    Readouts of loops without gradient are left out: they teach the head alone.
    """
    taught = differentiated(t)
    return [_view(t, k) for k in subject.objective.supervision.loops(t.loops.total) if k in taught]


def _view(t: Trajectory, k: int) -> View:
    seen = {factor: _seen(t, k, factor) for factor in SCALES}
    fractions, slopes = ({factor: pair[place] for factor, pair in seen.items()} for place in (0, 1))
    return View(k, fractions, slopes)


def _seen(t: Trajectory, k: int, factor: float) -> tuple[float, float]:
    """Radial fraction, and slope in nats per unit of log scale, of the cross-entropy read from one rescaled state."""
    s = (t.state(k).detach() * factor).requires_grad_()
    (gradient,) = torch.autograd.grad(nll(t, s, k, t.loops.total, torch.float64).sum(), s)
    share, along = alignment(gradient, s.detach())
    directed = share.isfinite()
    # without any gradient nothing is seen
    fraction = share[directed].mean().item() if directed.any() else 0.0
    return fraction, along.sum().item() / max(t.batch.num_scored, 1)


def pulls(subject: AuditSubject, t: Trajectory) -> list[Pull]:
    """How the supervised loss as a whole, which may reach the state past its readouts, and each regularizer answer to
    the scale of all states."""
    slopes: dict[str, dict[int, float]] = {}
    weights = {"supervision": 1.0}
    for scale in (*SCALES, FAR):
        for name, (weight, value, leaves) in _terms(subject, t, scale).items():
            weights[name] = weight
            slopes.setdefault(name, {})[scale] = weight * slope(value, leaves)
    return [Pull(name, weights[name], values) for name, values in slopes.items()]


def _terms(subject: AuditSubject, t: Trajectory, factor: float) -> dict[str, tuple[float, Tensor, dict[int, Tensor]]]:
    twin, leaves = rescaled(t, factor)
    found = {"supervision": (1.0, subject.objective.supervision(twin).loss, leaves)}
    for name, term in subject.objective.regularizers.items():
        assert isinstance(term, Regularizer)
        try:
            found[f"regularizer {name}"] = (term.weight, Regularized.of(term(twin)).value, leaves)
        except Exception as error:
            error.add_note(f"while measuring the regularizer '{name}'")
            raise
    return found
