"""What a user should hear before the first step: a recipe that leaves the state's scale to itself, slow arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from loopkit.cost.ceiling import Ceiling, matmul_rate
from loopkit.recipe import Recipe

SLOWER = 1.5
"""How many times faster fp32 must be for bf16 to be called slow."""


def cautions(recipe: Recipe, device: torch.device, found: Ceiling) -> Iterator[str]:
    """One line for each.

    Args:
        recipe: The resolved recipe.
        device: Where it trains.
        found: What the device can do in the recipe's arithmetic.
    """
    from loopkit.evaluation.audit import warn_of_blind_spot

    if (blind := warn_of_blind_spot(recipe)) is not None:
        yield f"warning: {blind}"
    yield from slow_arithmetic(device, found)


def slow_arithmetic(device: torch.device, found: Ceiling) -> Iterator[str]:
    """A line where fp32 would be faster."""
    if device.type == "cpu" and found.dtype == "bfloat16":
        faster = matmul_rate(device, torch.float32, 0.1) / found.flops_per_s
        if faster > SLOWER:
            yield (
                f"warning: this CPU is {faster:.0f} times faster in fp32 than in bf16, because it has no instructions "
                "for bf16; --set train.precision=fp32"
            )
