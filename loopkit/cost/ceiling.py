"""How many floating-point operations a second a device can do at most: what MFU is measured against."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from loopkit.cost.hardware import accelerator_of


@dataclass(frozen=True)
class Ceiling:
    """The most a device can do.

    Args:
        flops_per_s: Floating-point operations per second.
        source: ``table`` or ``matmul``.
        device: What it was looked up or measured for.
        dtype: Of the factors.
    """

    flops_per_s: float
    source: str
    device: str
    dtype: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ceiling(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> Ceiling:
    """Look the device up, or measure it.

    Args:
        device: Where training runs.
        dtype: Of its matrix products: bf16 under autocast, else fp32.
        seconds: How long to measure.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    word = str(dtype).removeprefix("torch.")
    if dtype is torch.bfloat16 and (known := accelerator_of(name)) is not None:
        return Ceiling(known.flops_per_s, "table", name, word)
    return Ceiling(matmul_rate(device, dtype, seconds), "matmul", name, word)


@cache
def recipe_ceiling(device: torch.device, precision: str) -> Ceiling:
    """The ceiling in a recipe's arithmetic; a process that trains or plans several recipes measures it once.

    Args:
        device: Where training runs.
        precision: ``train.precision``.
    """
    return ceiling(device, torch.bfloat16 if precision == "bf16_autocast" else torch.float32)


def matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    """FLOP/s of the best square matrix product within some seconds; on slow arithmetic of a smaller one.

    The factors are random, as constant ones draw less power and let a GPU run faster than training can. The global
    random state is left as it is.
    """
    generator = torch.Generator(device).manual_seed(0)
    # a GPU is asked for several at once, so that waiting for it is no part of the time
    largest, rounds = (4096, 8) if device.type == "cuda" else (1024, 1)
    size, best, end = largest // 8, 0.0, _now(device) + seconds
    while True:
        a, b = torch.randn(2, size, size, device=device, dtype=dtype, generator=generator)
        out = a @ b  # the first call of a size chooses a kernel
        last = 0.0
        while not last or (size == largest and _now(device) < end):
            begin = _now(device)
            for _ in range(rounds):
                torch.matmul(a, b, out=out)
            last = max(_now(device) - begin, 1e-9)
            best = max(best, rounds * 2 * size**3 / last)
        if (
            size == largest or _now(device) + 2 * 8 * last > end
        ):  # twice the side is eight times the work, and done twice
            return best
        size *= 2


def _now(device: torch.device) -> float:
    """Seconds, once all that was asked for is done; of a CPU's own time, so that other programs take nothing away."""
    if device.type == "cpu":
        return time.process_time() / torch.get_num_threads()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
