"""Warnings before the first step: an uncontrolled scale of the state, and slow bf16 arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from loopkit.cost.hardware import Ceiling, recipe_ceiling
from loopkit.cost.matmul_rate import measure_matmul_rate
from loopkit.recipe import Recipe

SLOW_BF16 = 1.5
"""Ratio of fp32 to bf16 FLOP/s from which bf16 is reported as slow."""


def warnings_before_training(recipe: Recipe, device: torch.device) -> Iterator[str]:
    """Yield one line for each warning.

    Args:
        recipe: The resolved recipe.
        device: Where it trains.
    """
    from loopkit.evaluation.audit import warn_of_blind_spot

    if (message := warn_of_blind_spot(recipe)) is not None:
        yield f"warning: {message}"
    yield from warn_of_slow_bf16(device, recipe_ceiling(device, recipe.train.precision))


def warn_of_slow_bf16(device: torch.device, ceiling: Ceiling) -> Iterator[str]:
    """Yield a warning if fp32 is faster than the measured bf16."""
    if device.type == "cpu" and ceiling.dtype == "bfloat16":
        ratio = measure_matmul_rate(device, torch.float32, 0.1) / ceiling.flops_per_s
        if ratio > SLOW_BF16:
            yield (
                f"warning: this CPU is {ratio:.0f} times faster in fp32 than in bf16, because it has no instructions "
                "for bf16; --set train.precision=fp32"
            )
