"""Operations of a step, against a counter that watches a real one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from loopkit.components.supervision import Terminal
from loopkit.cost.flops import StepFlops
from loopkit.loop import Batch, Loops
from loopkit.model import build_model
from loopkit.training.step.loop_sampling import LoopDraw
from tests.training.conftest import Maker

LENGTH, VOCABULARY = 16, 40


@pytest.mark.parametrize(("total", "backprop"), [(1, 1), (6, 6), (6, 2), (10, 4)])
def test_loops_run_and_differentiated_are_counted(recipe: Maker, total: int, backprop: int) -> None:
    resolved = recipe("model.injection=add")  # so that the prelude is always differentiated
    model = build_model(resolved.model, vocabulary=VOCABULARY, max_length=LENGTH, max_loops=10, seed=0).eval()
    batch = Batch.of(torch.zeros(2, LENGTH, dtype=torch.int64))
    with sdpa_kernel([SDPBackend.MATH]), FlopCounterMode(display=False) as counter:
        model.run(batch, Loops.fixed(total, backprop)).logits(total).sum().backward()
    counted = StepFlops(model, Terminal(), length=LENGTH, max_loops=10)
    assert counted.per_token(total, backprop) * 2 * LENGTH == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_step_counts_each_draw(recipe: Maker) -> None:
    model = build_model(recipe().model, vocabulary=VOCABULARY, max_length=LENGTH, max_loops=8, device="meta")
    flops = StepFlops(model, Terminal(), length=LENGTH, max_loops=8)
    draw = LoopDraw(np.array([2, 6]), "sequence", 4)
    assert flops.step(draw.pairs, 100) == pytest.approx(50 * (flops.per_token(2, 2) + flops.per_token(6, 4)))
