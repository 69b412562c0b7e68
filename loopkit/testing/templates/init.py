"""An initialisation."""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.init import Init, InitContext
from loopkit.registry import register


@register("init", "template")
class Template(Init):
    """Uniform weights scaled by the number of inputs; biases are zero.

    W ~ U(-a, a),   a = gain * sqrt(3 / num_inputs)

    Args:
        gain: Standard deviation of the output for inputs of unit variance, > 0.
    """

    def __init__(self, *, gain: PositiveFloat = 1.0) -> None:
        self.gain = gain

    def draw(
        self, name: str, module: nn.Module, part: str, shape: torch.Size, scale: InitContext, generator: torch.Generator
    ) -> Tensor:
        if part == "bias":
            return torch.zeros(shape)
        bound = self.gain * math.sqrt(3 / shape[-1])
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)
