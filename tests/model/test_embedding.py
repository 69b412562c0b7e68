"""Tokens to vectors."""

from __future__ import annotations

import torch

from loopkit.components.position import Learned, NoPosition
from loopkit.loop import Noise
from loopkit.model.embedding import Embedding

TOKENS, PLACES = torch.tensor([[3, 1]]), torch.tensor([[0, 1]])
NOISE = Noise(0, 0, torch.tensor([0]), PLACES)


def test_scale_then_position() -> None:
    position = Learned(4, 5)
    module = Embedding(7, 4, scale="sqrt_width", dropout=0.0)
    expected = 2 * module.tokens.weight[TOKENS] + position.table.weight[PLACES]
    torch.testing.assert_close(module(TOKENS, PLACES, position, NOISE), expected)


def test_dropout_applies_to_sum_in_training() -> None:
    module = Embedding(7, 400, scale=1.0, dropout=0.5)
    assert 0.4 < (module(TOKENS, PLACES, NoPosition(), NOISE) == 0).float().mean() < 0.6
    assert torch.equal(module.eval()(TOKENS, PLACES, NoPosition(), NOISE), module.tokens.weight[TOKENS])
