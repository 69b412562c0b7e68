"""The first verdict: is the state's scale seen, kept and held?"""

from __future__ import annotations

import torch

from loopkit.errors import UserError
from loopkit.evaluation.audit.findings import ScaleFinding
from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.evaluation.audit.update_geometry import motion
from loopkit.evaluation.audit.visibility import pulls, views


def scale_of(subject: AuditSubject, *, many: int = 0) -> ScaleFinding:
    """Measure everything that the verdict on scale rests on.

    Args:
        subject: What is audited.
        many: Loops over which growth is followed; 0 leaves that out.

    Raises:
        ValueError: If a state is not finite.
    """
    with torch.no_grad():
        t = subject.model.run(subject.batch, subject.loops)
    for k in range(1, t.reached + 1):
        if not t.state(k).isfinite().all():
            raise UserError(
                f"the state after loop {k} is not finite; these weights have diverged, audit an earlier step"
            )
    with torch.enable_grad():
        return ScaleFinding(views(subject, t), pulls(subject, t), motion(subject, many=many))
