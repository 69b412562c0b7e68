"""An exit gate. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.gate import Gate
from loopkit.loop import Step, widen
from loopkit.registry import register


@register("gate", "template", provides={"gate"})
class Template(Gate):
    """An exit logit from a small MLP on the state.

    g = w · gelu(W s)

    Args:
        hidden: Number of hidden channels.
    """

    def __init__(self, width: int, *, hidden: PositiveInt = 64) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return widen(self.out(F.gelu(self.up(s))).squeeze(-1))
