"""Whether the state settles, stays in motion, or drifts away as the loop continues.

Dims: K loops, N tokens, D channels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from loopkit.components.probe import token_vectors
from loopkit.evaluation.audit.findings import Settling
from loopkit.loop import Batch, LoopedModelProtocol, Loops

FEWEST = 16
"""Loops below which no law can be told from another."""

FLOOR = 1e-6
"""Distance, relative to the norm of the state, below which it is rounding."""

DECAY = math.log(0.6)
"""Logarithm by which an exponential must fall over the observed loops, to be told from a constant."""

GROWTH = 0.25
"""Power of the number of loops with which a bounded norm may still grow."""


@torch.no_grad()
def measure_settling(model: LoopedModelProtocol, batch: Batch, loops: int) -> Settling | None:
    """Run many loops and classify the path of the state.

    Args:
        model: In evaluation mode.
        batch: A few short sequences.
        loops: Loops to run; fewer if the model has parameters for fewer.

    Returns:
        None if the model cannot run enough loops.
    """
    loops = loops if model.max_depth is None else min(loops, model.max_depth)
    if loops < FEWEST:
        return None
    t = model.run(batch, Loops.fixed(loops))
    return classify(torch.stack([token_vectors(t.state(k), batch) for k in range(1, loops + 1)]))


def classify(s_KND: Tensor) -> Settling:
    """Tell settling, marginal and drifting paths apart.

    Two laws are fitted to the mean distance between successive states in the second half of the path:
    exponential, log d = a + k log(rate), and power, log d = a + power log(k). The path settles if the exponential falls
    and fits better, or if the distance reaches rounding; else it drifts if the norm grows as a power of k.

    Args:
        s_KND: The states after loops 1 to K, K >= ``FEWEST``.
    """
    loops = len(s_KND)
    norm_K = s_KND.double().norm(dim=-1).mean(dim=-1)
    distance_K = (s_KND[1:] - s_KND[:-1]).double().norm(dim=-1).mean(dim=-1)  # of loop 2, 3, ...
    if not bool(norm_K.isfinite().all() and distance_K.isfinite().all()):
        return Settling("drifting", loops)
    k = torch.arange(2, loops + 1, dtype=torch.float64)
    moving = distance_K > FLOOR * norm_K[1:]
    growth, _ = _fit(k.log()[loops // 2 :], norm_K[1:][loops // 2 :])
    observed = moving & (k > loops // 2)
    if int(observed.sum()) < FEWEST // 2:  # it came to rest before
        observed = moving
    if int(observed.sum()) < 3:
        return Settling("settling", loops, growth=growth)
    slope, error_exponential = _fit(k[observed], distance_K[observed])
    power, error_power = _fit(k.log()[observed], distance_K[observed])
    fall = slope * float(k[observed][-1] - k[observed][0])
    at_rest = not bool(moving[-1])
    if at_rest or (fall < DECAY and error_exponential <= error_power):
        return Settling("settling", loops, math.exp(slope), power, growth)
    return Settling("drifting" if growth > GROWTH else "marginal", loops, math.exp(slope), power, growth)


def _fit(x: Tensor, values: Tensor) -> tuple[float, float]:
    """Fit a line to the logarithm of positive values; return its slope and the squared error."""
    y = values.clamp(min=torch.finfo(values.dtype).tiny).log()
    centred = x - x.mean()
    slope = (centred * (y - y.mean())).sum() / centred.square().sum().clamp(min=torch.finfo(y.dtype).tiny)
    error = (y - y.mean() - slope * centred).square().sum()
    return slope.item(), error.item()
