"""Parameters that ZeRO-3 divides among ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def part_of(full: Tensor, parameter: nn.Parameter) -> Tensor:
    """Return this rank's part of a tensor of a parameter's shape.

    Args:
        full: The tensor, such as the parameter's value or a moment of the optimizer.
        parameter: The parameter.

    Returns:
        ``[part]``, flat, zero where the part ends after the tensor; the tensor itself if the parameter is not divided.
    """
    held = getattr(parameter, "ds_tensor", None)
    if held is None:
        return full
    # all parts have the same size, so the last one is padded
    part, rank = held.numel(), torch.distributed.get_rank()
    return nn.functional.pad(full.flatten(), (0, part * (rank + 1))).narrow(0, part * rank, part)


def release_gathered(parameters: Sequence[nn.Parameter]) -> None:
    """Drop the full values that ZeRO-3 has gathered; the next forward pass gathers them from the parts again."""
    gathered = [parameter for parameter in parameters if hasattr(parameter, "ds_tensor")]
    if gathered:
        gathered[0].partition(param_list=gathered, has_been_updated=False)  # type: ignore[attr-defined]
