"""Readouts of the sequences that are active, and their scores at the tokens that have a label.

Dims: B sequences, T tokens, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loopkit.loop.batch import IGNORE, Batch

if TYPE_CHECKING:
    from loopkit.loop.trajectory import Trajectory

RowWeight = Tensor | float | None
"""The gradient that each likelihood will receive, up to one factor: a tensor, a number for all, or unknown."""

_CHUNK = 4096  # tokens whose logits are held at once


def read_active(t: Trajectory, s: Tensor, k: int, at: int, active_B: Tensor) -> Tensor:
    """``z_k`` of the active sequences; 0 for the others, whose tokens must not enter the cache of a coda.

    Shapes: s: ``[B, T, *S, D]``; result: ``[B, T, D]``.
    """
    rows = active_B.nonzero().squeeze(1)
    z = t.read(s[rows], k, at, rows=rows)
    return z.new_zeros(len(active_B), *z.shape[1:]).index_copy(0, rows, z)


def score_labels(head: Any, z: Tensor, batch: Batch, weight: RowWeight = None) -> Tensor:
    """Negative log-likelihood of the labels, ``[..., B, T, D] -> [..., B, T]``; see ``Trajectory.score``."""
    labels = batch.labels.expand(z.shape[:-1])
    if batch.num_scored == batch.labels.numel():
        return head(z, labels, weight)
    # scoring a token without a label would cost as much as scoring one with a label; the host has counted the labels,
    # so that a device need not wait for it
    at_N = batch.scored.flatten().nonzero_static(size=batch.num_scored).squeeze(1)
    if isinstance(weight, Tensor):
        weight = weight.expand(labels.shape).flatten(-2).index_select(-1, at_N)
    labels = labels.flatten(-2).index_select(-1, at_N)
    values = head(z.flatten(-3, -2).index_select(-2, at_N), labels, weight)
    nll = torch.zeros((*z.shape[:-3], batch.labels.numel()), dtype=values.dtype, device=z.device)
    return nll.index_copy(-1, at_N, values).unflatten(-1, batch.labels.shape)


def predict_tokens(head: Any, z_BTD: Tensor, batch: Batch) -> Tensor:
    """Return the most likely next token at each scored position, ``[B, T]`` int64; see ``Trajectory.predict``."""
    best = [head(chunk).max(-1) for chunk in z_BTD[batch.scored].split(_CHUNK)]
    tokens = [token.masked_fill(~logit.isfinite(), IGNORE) for logit, token in best]
    return torch.full_like(batch.labels, IGNORE).masked_scatter(batch.scored, torch.cat(tokens))
