"""The first verdict: is the state's scale seen, kept and held?"""

from __future__ import annotations

import torch

from loopkit.errors import UserError
from loopkit.evaluation.audit.findings import Scale
from loopkit.evaluation.audit.motion import motion
from loopkit.evaluation.audit.sight import pulls, views
from loopkit.evaluation.audit.subject import Subject


def scale_of(subject: Subject, *, many: int = 0) -> Scale:
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
        return Scale(views(subject, t), pulls(subject, t), motion(subject, many=many))
