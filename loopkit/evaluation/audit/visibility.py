"""Dependence of the losses on the state's scale."""

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
    """Measure each supervised readout separately.

    Readouts of loops without gradient are omitted, because they train only the head.
    """
    with_gradient = differentiated(t)
    return [_view(t, k) for k in subject.objective.supervision.loops(t.loops.total) if k in with_gradient]


def _view(t: Trajectory, k: int) -> View:
    pairs = {factor: _fraction_and_slope(t, k, factor) for factor in SCALES}
    fractions, slopes = ({factor: pair[i] for factor, pair in pairs.items()} for i in (0, 1))
    return View(k, fractions, slopes)


def _fraction_and_slope(t: Trajectory, k: int, factor: float) -> tuple[float, float]:
    """Return radial fraction, and slope in nats per unit of log scale, of the cross-entropy of one rescaled state."""
    s = (t.state(k).detach() * factor).requires_grad_()
    (gradient,) = torch.autograd.grad(nll(t, s, k, t.loops.total, torch.float64).sum(), s)
    fraction, along = alignment(gradient, s.detach())
    defined = fraction.isfinite()
    # without any gradient, the loss does not depend on the scale
    mean = fraction[defined].mean().item() if defined.any() else 0.0
    return mean, along.sum().item() / max(t.batch.num_scored, 1)


def pulls(subject: AuditSubject, t: Trajectory) -> list[Pull]:
    """Measure how the total supervised loss and each regularizer depend on the scale of all states.

    The supervised loss may depend on the state by other ways than its readouts.
    """
    slopes: dict[str, dict[int, float]] = {}
    weights = {"supervision": 1.0}
    for scale in (*SCALES, FAR):
        for name, (weight, value, leaves) in _terms(subject, t, scale).items():
            weights[name] = weight
            slopes.setdefault(name, {})[scale] = weight * slope(value, leaves)
    return [Pull(name, weights[name], values) for name, values in slopes.items()]


def _terms(subject: AuditSubject, t: Trajectory, factor: float) -> dict[str, tuple[float, Tensor, dict[int, Tensor]]]:
    twin, leaves = rescaled(t, factor)
    terms = {"supervision": (1.0, subject.objective.supervision(twin).loss, leaves)}
    for name, term in subject.objective.regularizers.items():
        assert isinstance(term, Regularizer)
        try:
            terms[f"regularizer {name}"] = (term.weight, Regularized.of(term(twin)).value, leaves)
        except Exception as error:
            error.add_note(f"while measuring the regularizer '{name}'")
            raise
    return terms
