"""Power iteration: the spectral radius of a linear map without its matrix.

Dims: B maps, applied in parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 200
"""Reaches 1 % on highly non-normal matrices, whose powers grow at first even if all eigenvalues are small."""


class PowerIterationResult(NamedTuple):
    """Spectral radii and the convergence of the power method.

    Args:
        rho: In fp64; exactly 0 if the vector vanishes.
        residual: Relative difference of the growth in the third and in the last quarter of the steps; large if the
            method has not converged, 0 if ``rho`` is 0.
    """

    rho: Tensor
    residual: Tensor


def spectral_radius(apply: Callable[[Tensor], Tensor], start: Tensor, *, steps: int = STEPS) -> PowerIterationResult:
    """Compute the largest modulus of the eigenvalues of each of B linear maps, by the power method.

        rho = (||A^n v|| / ||A^m v||)^(1 / (n - m)),   n = steps, m = n / 2

    The ratio of norms, because a Rayleigh quotient converges to the wrong number if the largest eigenvalues are a
    complex pair. The norm then oscillates, so growth is averaged over the second half of the steps.

    Args:
        apply: ``v -> A v`` for all maps at once, or the transposed maps, which have the same eigenvalues.
        start: Random start vectors, so that every eigenvector has a component.
        steps: Number of applications, >= 4.

    Shapes:
        start, argument and result of ``apply``: ``[B, ...]``. Returns ``[B]`` each.
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
    """Normalize each vector; also return the norms, ``[B]`` in fp64. A zero vector is not changed."""
    norm = v.flatten(1).double().norm(dim=1)
    divisor = torch.where(norm > 0, norm, 1).view(-1, *(1,) * (v.dim() - 1))
    return (v / divisor).to(v.dtype), norm
