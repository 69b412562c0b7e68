"""An MLP. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.mlp import Mlp
from loopkit.loop import Step
from loopkit.registry import register


@register("mlp", "template")
class Template(Mlp):
    """A gated linear unit with a GELU gate (GEGLU).

    y = W_out (gelu(W_gate x) * W_up x)

    Args:
        ratio: Number of hidden channels, in units of the width, > 0.
    """

    def __init__(self, width: int, *, ratio: PositiveFloat = 4.0) -> None:
        super().__init__()
        hidden = round(ratio * width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(F.gelu(self.gate(x)) * self.up(x))
