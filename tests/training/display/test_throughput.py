"""Throughput: rates between two readings."""

from __future__ import annotations

import time

import pytest
import torch

from loopkit.training.display.throughput import Throughput, peak_memory

CPU = torch.device("cpu")


def test_rates_cover_the_time_since_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    speed = Throughput(1000.0, CPU)
    clock[0] += 2.0
    speed.add(40, 300.0)
    with speed.paused():
        clock[0] += 50.0  # such as an evaluation
    clock[0] += 2.0
    speed.add(40, 300.0)
    metrics = speed.read()
    assert (metrics["tokens_per_s"], metrics["step_s"], metrics["mfu"]) == (20.0, 2.0, 0.15)
    clock[0] += 1.0
    speed.add(10, 500.0)
    assert speed.read()["mfu"] == 0.5


@pytest.mark.parametrize(("peak", "flops"), [(None, 1.0), (1.0, None)])
def test_mfu_needs_peak_and_model_flops(peak: float | None, flops: float | None) -> None:
    speed = Throughput(peak, CPU)
    speed.add(1, flops)
    assert speed.read()["mfu"] is None


def test_memory_is_of_this_process() -> None:
    assert 2**26 < peak_memory(CPU) < 2**40
