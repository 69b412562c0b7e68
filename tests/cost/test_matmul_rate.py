"""The measured rate of matrix products."""

from __future__ import annotations

import pytest
import torch

from loopkit.cost import matmul_rate
from loopkit.cost.matmul_rate import measure_matmul_rate

CPU = torch.device("cpu")


def test_the_rate_of_a_cpu_is_plausible() -> None:
    assert 1e8 < measure_matmul_rate(CPU, torch.float32, 0.05) < 1e14


def test_other_programs_do_not_affect_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds of processor time on two threads count as one and a half."""
    monkeypatch.setattr(matmul_rate.time, "process_time", iter(range(0, 10**6, 3)).__next__)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert measure_matmul_rate(CPU, torch.float32, 0.0) == pytest.approx(2 * 128**3 / 1.5)


@pytest.mark.parametrize("flops_per_s", [1e8, 1e9, 1e11, 1e13])
def test_slow_arithmetic_is_measured_in_time(monkeypatch: pytest.MonkeyPatch, flops_per_s: float) -> None:
    clock = [0.0]

    def product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        clock[0] += 2 * a.shape[0] ** 3 / flops_per_s
        return torch.empty_like(a) if out is None else out

    monkeypatch.setattr(matmul_rate, "_now", lambda device: clock[0])
    monkeypatch.setattr(torch, "matmul", product)
    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    assert measure_matmul_rate(CPU, torch.float32, 0.5) == pytest.approx(flops_per_s)
    assert clock[0] < 1.0


def test_the_factors_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant factors cost a GPU less power, so that it runs faster than in training; global draws are kept."""
    factors: list[torch.Tensor] = []
    matmul = torch.matmul

    def product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        factors.extend((a, b))
        return matmul(a, b, out=out)

    monkeypatch.setattr(torch, "matmul", product)
    before = torch.get_rng_state()
    measure_matmul_rate(CPU, torch.float32, 0.0)
    assert all(factor.unique().numel() > factor.numel() / 2 for factor in factors)
    assert not torch.equal(factors[0], factors[1])
    assert torch.equal(before, torch.get_rng_state())
