"""The table of GPUs, and the peak FLOP/s of a device."""

from __future__ import annotations

import pytest
import torch

from loopkit.cost import hardware
from loopkit.cost.hardware import GPU, GPUS, data_sheet_ceiling, find_gpu, match_gpu, measured_ceiling, recipe_ceiling

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [1e11, 1e12])
def test_a_cpu_is_measured(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_rate", lambda *_: rate)
    assert data_sheet_ceiling(CPU, torch.bfloat16) is None
    ceiling = measured_ceiling(CPU, torch.float32)
    assert ceiling.to_json() == {"flops_per_s": rate, "source": "matmul", "device": "cpu", "dtype": "float32"}


def test_a_process_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter((1e12, 2e12))
    monkeypatch.setattr(hardware, "measure_matmul_rate", lambda *_: next(rates))
    recipe_ceiling.cache_clear()
    ceilings = [recipe_ceiling(CPU, precision) for precision in ("fp32", "fp32", "bf16_autocast", "fp32")]
    assert [(ceiling.flops_per_s, ceiling.dtype) for ceiling in ceilings] == [
        (1e12, "float32"),
        (1e12, "float32"),
        (2e12, "bfloat16"),
        (1e12, "float32"),
    ]
    recipe_ceiling.cache_clear()


def test_gpus_are_found_by_typed_name() -> None:
    assert find_gpu("h100").memory == 80e9
    assert find_gpu("rtx4090") == find_gpu("RTX 4090")
    with pytest.raises(
        ValueError, match=r"--gpu tpu: unknown GPU; known: .* H100,.* For others, give --flops and --memory"
    ):
        find_gpu("tpu")


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_gpu_is_matched_by_its_full_name(gpu: GPU) -> None:
    for name in ("NVIDIA {}", "{}", "NVIDIA GeForce {}", "NVIDIA {} 80GB HBM3"):
        assert match_gpu(name.format(gpu.name)) == gpu
    for name in ("NVIDIA {}00", "NVIDIA {}G", "NVIDIA {} Laptop GPU", "NVIDIA {} Ti", "NVIDIA {} MIG 3g.40gb", "X{}"):
        assert match_gpu(name.format(gpu.name)) is None


@pytest.mark.parametrize("name", ["NVIDIA RTX A1000", "NVIDIA A10G", "NVIDIA RTX A4000", "NVIDIA L40G", "Tesla T4"])
def test_a_gpu_with_a_similar_name_is_measured(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    monkeypatch.setattr(hardware, "measure_matmul_rate", lambda *_: 1e12)
    recipe_ceiling.cache_clear()
    assert recipe_ceiling(torch.device("cuda"), "bf16_autocast").source == "matmul"
    recipe_ceiling.cache_clear()


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
    recipe_ceiling.cache_clear()
    ceiling = recipe_ceiling(torch.device("cuda"), "bf16_autocast")
    recipe_ceiling.cache_clear()
    assert (ceiling.flops_per_s, ceiling.source, ceiling.device) == (expected, "table", name)
