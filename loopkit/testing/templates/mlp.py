"""An MLP. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.mlp import Mlp
from loopkit.loop import Step
from loopkit.registry import register


@register("mlp", "template")
class Template(Mlp):
    """A gated unit whose gate is a GELU.

    W_out (gelu(W_gate x) * W_up x)

    Args:
        ratio: Channels inside, in units of the width, > 0.
    """

    def __init__(self, width: int, *, ratio: PositiveFloat = 4.0) -> None:
        super().__init__()
        inside = round(ratio * width)
        self.gate = nn.Linear(width, inside, bias=False)
        self.up = nn.Linear(width, inside, bias=False)
        self.out = nn.Linear(inside, width, bias=False)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(F.gelu(self.gate(x)) * self.up(x))
