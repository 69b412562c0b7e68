"""What a device can do at most."""

from __future__ import annotations

import pytest
import torch

from loopkit.cost import ceiling as room
from loopkit.cost.hardware import ACCELERATORS, Accelerator, accelerator_of

CPU = torch.device("cpu")
measure = room.matmul_rate  # before the tests of this folder put a constant in its place


def test_a_processor_is_measured() -> None:
    found = room.ceiling(CPU, torch.float32)
    assert found.to_json() == {"flops_per_s": 1e12, "source": "matmul", "device": "cpu", "dtype": "float32"}
    assert 1e8 < measure(CPU, torch.float32, 0.05) < 1e14


def test_one_process_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter((1e12, 2e12))
    monkeypatch.setattr(room, "matmul_rate", lambda *_: next(rates))
    room.recipe_ceiling.cache_clear()
    measured = [room.recipe_ceiling(CPU, name) for name in ("fp32", "fp32", "bf16_autocast", "fp32")]
    assert [(found.flops_per_s, found.dtype) for found in measured] == [
        (1e12, "float32"),
        (1e12, "float32"),
        (2e12, "bfloat16"),
        (1e12, "float32"),
    ]
    room.recipe_ceiling.cache_clear()


def test_other_programs_take_nothing_from_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds of two threads' time are one and a half, however long they took by the clock."""
    monkeypatch.setattr(room.time, "process_time", iter(range(0, 10**6, 3)).__next__)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert measure(CPU, torch.float32, 0.0) == pytest.approx(2 * 128**3 / 1.5)


@pytest.mark.parametrize("flops_per_s", [1e8, 1e9, 1e11, 1e13])
def test_slow_arithmetic_does_not_hold_up_the_start(monkeypatch: pytest.MonkeyPatch, flops_per_s: float) -> None:
    clock = [0.0]

    def product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        clock[0] += 2 * a.shape[0] ** 3 / flops_per_s
        return torch.empty_like(a) if out is None else out

    monkeypatch.setattr(room, "_now", lambda device: clock[0])
    monkeypatch.setattr(torch, "matmul", product)
    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    assert measure(CPU, torch.float32, 0.5) == pytest.approx(flops_per_s)
    assert clock[0] < 1.0


def test_the_product_multiplies_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal numbers cost a GPU less power, so that it runs faster than in training; training's own draws are kept."""
    factors: list[torch.Tensor] = []
    real = torch.matmul

    def product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        factors.extend((a, b))
        return real(a, b, out=out)

    monkeypatch.setattr(torch, "matmul", product)
    before = torch.get_rng_state()
    measure(CPU, torch.float32, 0.0)
    assert all(factor.unique().numel() > factor.numel() / 2 for factor in factors)
    assert not torch.equal(factors[0], factors[1])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("accelerator", ACCELERATORS, ids=lambda accelerator: accelerator.name)
def test_a_gpu_is_matched_by_its_whole_name(accelerator: Accelerator) -> None:
    for name in ("NVIDIA {}", "{}", "NVIDIA GeForce {}", "NVIDIA {} 80GB HBM3"):
        assert accelerator_of(name.format(accelerator.name)) == accelerator
    for name in ("NVIDIA {}00", "NVIDIA {}G", "NVIDIA {} Laptop GPU", "NVIDIA {} Ti", "NVIDIA {} MIG 3g.40gb", "X{}"):
        assert accelerator_of(name.format(accelerator.name)) is None


@pytest.mark.parametrize("name", ["NVIDIA RTX A1000", "NVIDIA A10G", "NVIDIA RTX A4000", "NVIDIA L40G", "Tesla T4"])
def test_a_gpu_with_a_similar_name_is_measured(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert room.ceiling(torch.device("cuda"), torch.bfloat16).source == "matmul"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA RTX A6000", 155e12),
    ],
)
def test_a_known_gpu_is_looked_up(monkeypatch: pytest.MonkeyPatch, name: str, expected: float) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    found = room.ceiling(torch.device("cuda"), torch.bfloat16)
    assert (found.flops_per_s, found.source, found.device) == (expected, "table", name)
