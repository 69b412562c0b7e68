"""Check whether the logits depend on the tokens."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.loop import Batch
from loopkit.model import LoopedModel

SPREAD = 0.1
"""Standard deviation of the noise added to the weights, which opens paths that are closed at initialization."""


@torch.no_grad()
def reads_input(subject: AuditSubject) -> bool:
    """Whether different tokens give different logits after the last loop.

    A path through a matrix of zeros is closed at initialization and opens in training: if the initial weights show no
    difference, noise is added to them. No random state changes.
    """
    tokens = subject.batch.tokens
    other = replace(subject.batch, tokens=tokens.roll(1, dims=1).add(1).remainder(subject.model.vocabulary))
    if _differ(subject.model, subject, other):
        return True
    perturbed = copy.deepcopy(subject.model)
    generator = torch.Generator().manual_seed(0)
    for parameter in perturbed.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.add_(SPREAD * noise.to(parameter))
    return _differ(perturbed, subject, other)


def _differ(model: LoopedModel, subject: AuditSubject, other: Batch) -> bool:
    total = subject.loops.total
    logits, changed = (model.run(batch, subject.loops).logits(total) for batch in (subject.batch, other))
    return not torch.equal(logits, changed)
