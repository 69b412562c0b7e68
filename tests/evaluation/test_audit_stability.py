"""The spectral radius of a loop: against exact eigenvalues, and against maps known in closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.probe.spectral import loop_radius
from loopkit.evaluation.audit.stability import radii
from loopkit.loop import PAD, Batch, Loops, Noise, Step, Trajectory
from tests.model.tiny import batch, tiny


class Linear:
    """``c' = c A`` on each token separately, plus a term from the next token."""

    training = False

    def __init__(self, matrix: Tensor, *, backwards: float = 0.0) -> None:
        self.matrix, self.backwards = matrix, backwards

    def injection(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return c

    def core(self, u: Tensor, step: Step) -> Tensor:
        return u @ self.matrix + self.backwards * u.roll(-1, dims=1)

    def carry(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s


def passed(model: Any, batch: Batch, width: int) -> Trajectory:
    c = torch.ones(*batch.tokens.shape, width, dtype=torch.float64)
    t = Trajectory(model, batch, Loops.fixed(1), e=c, noise=Noise(0, 0, batch.sample, batch.positions))
    t.reached = 1
    t.keep(1, c, None)
    return t


def test_a_linear_loop() -> None:
    matrix = torch.tensor([[0.0, -1.3], [1.3, 0.0]], dtype=torch.float64)
    findings = loop_radius(passed(Linear(matrix), batch(2, 3), 2))
    assert findings.rho.tolist() == pytest.approx([1.3, 1.3], rel=1e-9)


def test_padding_is_ignored() -> None:
    # the last row's padding, if counted, would feed back into itself
    padded = replace(batch(2, 4), positions=torch.tensor([[0, 1, 2, 3], [0, PAD, PAD, PAD]]))
    findings = loop_radius(passed(Linear(0.5 * torch.eye(2).double(), backwards=2.0), padded, 2))
    assert findings.rho.tolist() == pytest.approx([2.5, 0.5], rel=1e-9)


@pytest.mark.parametrize("parts", [{}, {"carry": "norm"}, {"injection": "add"}])
def test_a_looped_transformer(parts: dict[str, Any]) -> None:
    model = tiny(width=8, core=1, dtype=torch.float64, **parts)
    tokens = batch(2, 6)
    with torch.no_grad():
        t = model.run(tokens, Loops.fixed(3))
    exact = []
    for row in range(2):
        with torch.no_grad():
            alone = model.run(tokens.rows(slice(row, row + 1)), Loops.fixed(3))
        c = alone.carried(3).detach()
        jacobian = torch.autograd.functional.jacobian(alone.step, c).reshape(c.numel(), -1)
        exact.append(torch.linalg.eigvals(jacobian).abs().max().item())
    assert loop_radius(t).rho.tolist() == pytest.approx(exact, rel=0.02)
    (findings,) = radii(model, tokens, [3])
    assert findings.max == pytest.approx(max(exact), rel=0.02)
    assert findings.mean == pytest.approx(sum(exact) / 2, rel=0.02)


def test_one_radius_per_depth_without_side_effects() -> None:
    model = tiny(width=8, core=1)
    findings = radii(model, batch(1, 4), [1, 4], steps=20)
    assert [radius.depth for radius in findings] == [1, 4]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert findings == radii(model, batch(1, 4), [1, 4], steps=20)
