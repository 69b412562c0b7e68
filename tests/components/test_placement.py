"""Placements, by their formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.components.placement import DeepNorm, Placement, Post, PostSandwich, Pre, PreSandwich
from tests.components.steps import random, step_for


class Numbered(Norm):
    """A norm that can be told from its siblings, in the order in which they were made."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Numbered.made += 1
        self.factor = 10.0**Numbered.made

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def f(x: Tensor) -> Tensor:
    return x + 1


CASES: list[tuple[Callable[[], Placement], Callable[[Tensor], Tensor], int]] = [
    (lambda: Pre(Numbered), lambda x: x + f(10 * x), 1),
    (lambda: Post(Numbered), lambda x: 10 * (x + f(x)), 1),
    (lambda: PreSandwich(Numbered), lambda x: x + 100 * f(10 * x), 2),
    (lambda: PostSandwich(Numbered), lambda x: 100 * (x + f(10 * x)), 2),
    (lambda: DeepNorm(Numbered, alpha=2.0), lambda x: 10 * (2 * x + f(x)), 1),
]


@pytest.mark.parametrize(("make", "formula", "norms"), CASES)
def test_each_is_its_formula(make: Callable[[], Placement], formula: Callable[[Tensor], Tensor], norms: int) -> None:
    Numbered.made = 0
    placement = make()
    assert Numbered.made == norms
    x = random(2, 3, 4, dtype=torch.float64)
    calls: list[Tensor] = []
    got = placement(x, lambda y: calls.append(y) or f(y), step_for(x))
    torch.testing.assert_close(got, formula(x))
    assert len(calls) == 1


@pytest.mark.parametrize("make", [make for make, _, _ in CASES])
def test_a_narrow_sublayer_does_not_narrow_the_stream(make: Callable[[], Placement]) -> None:
    x = random(2, 3, 4)
    placement = make()
    assert isinstance(placement, nn.Module)
    assert placement(x, lambda y: y.bfloat16(), step_for(x)).dtype == torch.float32
