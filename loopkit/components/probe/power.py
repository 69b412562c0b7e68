"""The spectral radius of a linear map that can only be applied. Letters: B maps, applied side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 200
"""Enough for 1 % on matrices far from normal, whose products first grow although all eigenvalues are small."""


class PowerIterationResult(NamedTuple):
    """Spectral radii and how far the power method had settled.

    Args:
        rho: In fp64, exactly 0 where the vector vanishes.
        residual: |difference| between the growth of the third and that of the last quarter of the steps, relative to
            ``rho``; large where the method has not converged. 0 where ``rho`` is.
    """

    rho: Tensor
    residual: Tensor


def spectral_radius(apply: Callable[[Tensor], Tensor], start: Tensor, *, steps: int = STEPS) -> PowerIterationResult:
    """Largest modulus among the eigenvalues of each of B linear maps, by the power method.

        rho = (||A^n v|| / ||A^m v||)^(1 / (n - m)),   n = steps, m = n / 2

    The ratio of norms, not a Rayleigh quotient: that settles on the wrong number where the largest eigenvalues are a
    complex pair. The norm then swings from step to step, so growth is averaged over the second half of the steps.

    Args:
        apply: ``v -> A v`` for all maps at once. The transposed map serves as well: it has the same eigenvalues.
        start: Vectors to begin with, random ones, so that no eigenvector is missed.
        steps: Applications, >= 4.

    Shapes:
        start, and what ``apply`` takes and gives: ``[B, ...]``. Returns ``[B]`` each.
    """
    v = _unit(start)[0]
    half, late = steps // 2, steps - steps // 4
    growth = torch.zeros(2, len(start), dtype=torch.float64, device=start.device)
    for n in range(steps):
        v, norm = _unit(apply(v))
        if n >= half:
            growth[int(n >= late)] += norm.log()
    rho = (growth.sum(0) / (steps - half)).exp()
    earlier, later = growth[0] / (late - half), growth[1] / (steps - late)
    return PowerIterationResult(rho, torch.where(rho == 0, 0.0, (later - earlier).expm1().abs()))


def _unit(v: Tensor) -> tuple[Tensor, Tensor]:
    """Each vector with norm 1, and the norm it had, ``[B]`` in fp64. A zero vector stays one: its logarithm counts."""
    norm = v.flatten(1).double().norm(dim=1)
    divisor = torch.where(norm > 0, norm, 1).view(-1, *(1,) * (v.dim() - 1))
    return (v / divisor).to(v.dtype), norm
