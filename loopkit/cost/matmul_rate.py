"""Measure the rate of matrix products on a device."""

from __future__ import annotations

import time

import torch


def measure_matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    """Return the FLOP/s of the fastest square matrix product within a time limit; slow devices get smaller matrices.

    The factors are random, because constant ones draw less power and let a GPU run faster than training can. The
    global random state does not change.
    """
    generator = torch.Generator(device).manual_seed(0)
    # a GPU gets several products at once, so that the time of synchronisation is negligible
    max_size, repeats = (4096, 8) if device.type == "cuda" else (1024, 1)
    size, best, deadline = max_size // 8, 0.0, _now(device) + seconds
    while True:
        a, b = torch.randn(2, size, size, device=device, dtype=dtype, generator=generator)
        out = a @ b  # the first call of a size chooses a kernel
        elapsed = 0.0
        while not elapsed or (size == max_size and _now(device) < deadline):
            start = _now(device)
            for _ in range(repeats):
                torch.matmul(a, b, out=out)
            elapsed = max(_now(device) - start, 1e-9)
            best = max(best, repeats * 2 * size**3 / elapsed)
        # twice the side is eight times the work, done twice
        if size == max_size or _now(device) + 2 * 8 * elapsed > deadline:
            return best
        size *= 2


def _now(device: torch.device) -> float:
    """Seconds after all submitted work; on a CPU the process's own time, which other programs do not affect."""
    if device.type == "cpu":
        return time.process_time() / torch.get_num_threads()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
