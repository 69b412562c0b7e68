"""Whether the logits depend on the tokens at all."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.loop import Batch
from loopkit.model import LoopedModel

SPREAD = 0.1
"""Standard deviation of what is added to the weights, so that a path which is only closed at first opens."""


@torch.no_grad()
def reads_input(subject: AuditSubject) -> bool:
    """Whether other tokens give other logits after the last loop.

    A path may be closed at the first weights, as one through a matrix of zeros is, and open in training: where the
    first weights show no difference, weights beside them are tried. No random state is touched.
    """
    tokens = subject.batch.tokens
    other = replace(subject.batch, tokens=tokens.roll(1, dims=1).add(1).remainder(subject.model.vocabulary))
    if _differ(subject.model, subject, other):
        return True
    beside = copy.deepcopy(subject.model)
    generator = torch.Generator().manual_seed(0)
    for parameter in beside.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.add_(SPREAD * noise.to(parameter))
    return _differ(beside, subject, other)


def _differ(model: LoopedModel, subject: AuditSubject, other: Batch) -> bool:
    total = subject.loops.total
    logits, changed = (model.run(batch, subject.loops).logits(total) for batch in (subject.batch, other))
    return not torch.equal(logits, changed)
