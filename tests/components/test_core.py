"""The stack."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.components.block import Block
from loopkit.components.core import Stack
from loopkit.loop import Step
from tests.components.steps import random, step_for


class Append(Block):
    """Multiplies by ten and adds its number."""

    num_built = 0

    def __init__(self) -> None:
        super().__init__()
        Append.made += 1
        self.number = Append.made

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return 10 * x + self.number


def test_blocks_apply_in_order() -> None:
    Append.made = 0
    core, x = Stack(Append, layers=3), torch.zeros(1, 1, 2)
    assert core(x, step_for(x)).tolist() == [[[123, 123]]]
    s = random(1, 2, 3)
    assert core.emit(s) is s
