"""Linear recurrences of known spectrum, and nonlinear ones of known law, are told apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from loopkit.evaluation.audit.settling import FEWEST, classify, measure_settling
from tests.model.tiny import batch, tiny

DRAWS, SIZE, TOKENS, LOOPS = 100, 12, 5, 64


def spectrum(largest: float, generator: torch.Generator, *, rotate: bool) -> Tensor:
    """A matrix of eigenvalues of modulus at most ``largest``, which is that of the first pair or of the first one."""
    blocks = []
    moduli = [largest, *(torch.rand(SIZE // 2 - 1, generator=generator) * 0.9 * largest).tolist()]
    for place, modulus in enumerate(moduli):
        angle = float(torch.rand((), generator=generator)) * 2 + 0.3 if rotate or place else 0.0
        turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        blocks.append(modulus * turn)
    basis, _ = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=generator))
    return (basis @ torch.block_diag(*blocks) @ basis.T).double()


def path(matrix: Tensor, generator: torch.Generator, *, with_input: bool) -> Tensor:
    """The states of ``s' = A s + b``, ``[K, N, D]``."""
    s, b = (torch.randn(TOKENS, SIZE, generator=generator).double() for _ in range(2))
    states = []
    for _ in range(LOOPS):
        s = s @ matrix.T + (b if with_input else 0.0)
        states.append(s)
    return torch.stack(states)


def draw_radius(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


@pytest.mark.parametrize(
    ("kind", "radius", "rotate", "with_input"),
    [
        ("settling", (0.3, 0.95), True, True),
        ("settling", (0.3, 0.95), False, False),
        ("marginal", (1.0, 1.0), True, False),
        ("drifting", (1.0, 1.0), False, True),
        ("drifting", (1.02, 1.3), True, False),
    ],
)
def test_linear_recurrences_are_told_apart(
    kind: str, radius: tuple[float, float], rotate: bool, with_input: bool
) -> None:
    """All of 100 draws: below 1, a cycle, a constant push along an eigenvector, above 1."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        rho = draw_radius(*radius, generator)
        result = classify(path(spectrum(rho, generator, rotate=rotate), generator, with_input=with_input))
        assert result.kind == kind, (rho, result)


def test_rate_is_the_spectral_radius() -> None:
    generator = torch.Generator().manual_seed(1)
    for rho in (0.6, 0.8, 0.95):
        result = classify(path(spectrum(rho, generator, rotate=False), generator, with_input=True))
        assert result.rate == pytest.approx(rho, abs=0.01)


@pytest.mark.parametrize(
    ("update", "kind", "power"),
    [
        (lambda s: s - 0.5 * s**3, "marginal", -1.5),  # s ~ k^(-1/2)
        (lambda s: s + 0.5 / s, "drifting", -0.5),  # s ~ k^(1/2)
    ],
)
def test_power_laws_are_no_exponentials(update: Callable[[Tensor], Tensor], kind: str, power: float) -> None:
    s, states = torch.full((1, 1), 0.9, dtype=torch.float64), []
    for _ in range(LOOPS):
        s = update(s)
        states.append(s)
    result = classify(torch.stack(states))
    assert (result.kind, result.power) == (kind, pytest.approx(power, abs=0.1))


def test_states_that_overflow_drift() -> None:
    states = torch.full((LOOPS, 1, 2), math.inf)
    assert classify(states).kind == "drifting"


def test_a_state_at_rest_is_settling() -> None:
    assert classify(torch.ones(LOOPS, 2, 3)).kind == "settling"


def test_models_with_few_loops_are_not_classified() -> None:
    model = tiny(readout={"type": "alpha", "per_loop": True}, max_loops=4)
    assert measure_settling(model, batch(), 64) is None
    settled = measure_settling(tiny(carry="norm"), batch(), FEWEST)
    assert settled is not None
    assert settled.loops == FEWEST
