"""Dropout masks depend on the token: batch splits, recomputation and compilation do not change them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from loopkit.components.regularizer.jacobian import JSRR
from loopkit.components.supervision import PerLoop
from loopkit.loop import Batch, Dropout, Loops
from loopkit.model import LoopedModel
from loopkit.recipe.format import EmbeddingConfig
from tests.components.steps import step_for
from tests.model.tiny import batch, tiny

BLOCK: dict[str, Any] = {
    "type": "transformer",
    "attention": {"heads": 2, "dropout": 0.3, "out_dropout": 0.2},
    "mlp": {"ratio": 2},
    "dropout": 0.2,
}


def dropping(**parts: Any) -> LoopedModel:
    """A model with every kind of dropout, in training mode."""
    parts = {"prelude": 1, "coda": 1, "core": 2, "dtype": torch.float64} | parts
    return tiny(block=BLOCK, embedding=EmbeddingConfig(dropout=0.1), **parts).train()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return grads


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-9, atol=1e-12)


def backward(model: LoopedModel, data: Batch, loops: int = 3, step: int = 5, share: float = 1.0) -> None:
    t = model.run(data, Loops.fixed(loops), noise_key=(3, step))
    (share * (PerLoop()(t).loss + JSRR()(t).double())).backward()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_split_of_batch_changes_only_rounding(size: int) -> None:
    """This includes the extra application of JSRR, and any state of torch's generator."""
    model, data = dropping(), batch(rows=6)
    backward(model, data)
    expected = gradients(model)
    for part in data.split(size):
        torch.rand(1)
        backward(model, part, share=len(part) / len(data))
    assert_same(gradients(model), expected)


def test_split_of_unequal_depths_changes_only_rounding() -> None:
    """A micro-batch runs to its own deepest sequence, which shifts the loop numbers of its sequences."""
    model, data, depths = dropping(), batch(rows=4), torch.tensor([4, 1, 2, 3])
    expected = model.run(data, Loops(4, 4, depths)).logits(4)
    parts = []
    for first in (0, 1, 2, 3):
        rows = slice(first, first + 1)
        depth = int(depths[first])
        parts.append(model.run(data.rows(rows), Loops(depth, depth, depths[rows])).logits(depth))
    torch.testing.assert_close(torch.cat(parts), expected)


def test_padding_on_the_right_changes_no_mask() -> None:
    model, data = dropping(), batch(rows=2, length=8)
    short = model.run(data, Loops.fixed(2)).logits(2)
    wide = Batch(*(torch.nn.functional.pad(x, (0, 3), value=v) for x, v in pads(data)), data.sample)
    torch.testing.assert_close(model.run(wide, Loops.fixed(2)).logits(2)[:, :8], short)


def pads(data: Batch) -> list[tuple[Tensor, int]]:
    return [(data.tokens, 5), (data.labels, -100), (data.positions, 2**30)]


def test_masks_differ_by_step_loop_and_position() -> None:
    x = torch.ones(2, 3, 64)
    first = Dropout(0.5, "mlp", 0).train()
    masks = [
        first(x, step_for(x)),
        Dropout(0.5, "mlp", 1)(x, step_for(x)),
        Dropout(0.5, "attention", 0)(x, step_for(x)),
    ]
    t = dropping().run(batch(rows=2, length=3), Loops.fixed(2), noise_key=(0, 1))
    masks += [first(x, t.context(k, x)) for k in (1, 2)]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert 0.3 < (one == other).float().mean() < 0.7
    assert torch.equal(first(x, step_for(x)), masks[0])
    assert first.eval()(x, step_for(x)) is x
    assert Dropout(0.0, "none").train()(x, step_for(x)) is x


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_numbers_are_dropped_independently_at_the_rate(rate: float) -> None:
    """Mean and covariances of near and distant numbers in every dimension are within four standard errors."""
    drop, like = Dropout(rate, "weights"), torch.ones(16, 4, 64, 64)
    mask = drop.train().drop_weights(like, step_for(like[:, 0])).mul(1 - rate)
    assert mask.unique().tolist() == pytest.approx([0.0, 1.0])
    x = (mask > 0).double() - (1 - rate)
    error = rate * (1 - rate) / math.sqrt(x.numel())
    assert x.mean().abs() < 4 * math.sqrt(rate * (1 - rate) / x.numel())
    for dim in range(4):
        for shift in (1, 2, 3, x.shape[dim] // 2):
            assert (x * x.roll(shift, dim)).mean().abs() < 4.5 * error, (dim, shift)
    triple = (x * x.roll(1, 3) * x.roll(3, 3)).mean().abs()
    assert triple < 4.5 * (rate * (1 - rate)) ** 1.5 / math.sqrt(x.numel())


def test_recomputed_loops_drop_the_same() -> None:
    model, data = dropping(), batch()
    backward(model, data)
    mask = gradients(model)
    model.checkpointing = True
    backward(model, data)
    assert_same(gradients(model), mask)


def test_compiled_blocks_drop_the_same_and_compile_once() -> None:
    """Numbers of layers, loops and steps are not constants of the compiled code."""
    model, data = dropping(core=3), batch()
    eager = model.run(data, Loops.fixed(3), noise_key=(3, 5)).logits(3)
    torch._dynamo.reset()
    model.compile_blocks(backend="aot_eager")
    torch.testing.assert_close(model.run(data, Loops.fixed(3), noise_key=(3, 5)).logits(3), eager)
    frames = torch._dynamo.utils.counters["frames"]["ok"]
    for step in (6, 7, 8):
        model.run(data, Loops.fixed(step), noise_key=(3, step)).logits(step)
    assert torch._dynamo.utils.counters["frames"]["ok"] == frames
    assert frames <= 4
