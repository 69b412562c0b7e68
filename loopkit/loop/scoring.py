"""Scores of readouts by a model's head, only at the tokens that have a label.

Dims: B sequences, T tokens, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loopkit.loop.batch import IGNORE, Batch

_CHUNK = 4096  # tokens whose logits are held at once


def score_labels(head: Any, z: Tensor, batch: Batch, weight: Tensor | None = None) -> Tensor:
    """Negative log-likelihood of the labels, ``[..., B, T, D] -> [..., B, T]``; see ``Trajectory.score``."""
    labels = batch.labels.expand(z.shape[:-1])
    if batch.num_scored == batch.labels.numel():
        return head(z, labels, weight)
    # scoring a token without a label would cost as much as scoring one with a label
    scored = labels != IGNORE
    values = head(z[scored], labels[scored], None if weight is None else weight[scored])
    return torch.zeros(labels.shape, dtype=values.dtype, device=z.device).masked_scatter(scored, values)


def predict_tokens(head: Any, z_BTD: Tensor, batch: Batch) -> Tensor:
    """Return the most likely next token at each scored position, ``[B, T]`` int64; see ``Trajectory.predict``."""
    best = [head(chunk).max(-1) for chunk in z_BTD[batch.scored].split(_CHUNK)]
    tokens = [token.masked_fill(~logit.isfinite(), IGNORE) for logit, token in best]
    return torch.full_like(batch.labels, IGNORE).masked_scatter(batch.scored, torch.cat(tokens))
