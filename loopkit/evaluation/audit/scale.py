"""The first verdict: whether losses depend on the state's scale, loops preserve it, and terms reduce it."""

from __future__ import annotations

import torch

from loopkit.errors import UserError
from loopkit.evaluation.audit.findings import ScaleFinding
from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.evaluation.audit.update_geometry import motion
from loopkit.evaluation.audit.visibility import pulls, views


def scale_of(subject: AuditSubject, *, many: int = 0) -> ScaleFinding:
    """Measure the figures of the verdict on scale.

    Args:
        subject: The subject of the audit.
        many: Loops over which growth is measured; 0 omits that.

    Raises:
        UserError: If a state is not finite.
    """
    with torch.no_grad():
        t = subject.model.run(subject.batch, subject.loops)
    for k in range(1, t.reached + 1):
        if not t.state(k).isfinite().all():
            raise UserError(f"the state after loop {k} is not finite: the weights have diverged; audit an earlier step")
    with torch.enable_grad():
        return ScaleFinding(views(subject, t), pulls(subject, t), motion(subject, many=many))
