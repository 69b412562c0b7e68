"""The time that a step's matrix products take at best: each product of the model, measured at its own shape."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import torch

from benchmarks.plain_loop import Shape

Product = tuple[int, int, int]
"""Rows, columns and inner size."""


def products(shape: Shape) -> Iterator[tuple[Product, int]]:
    """Yield the products of a training step and how often each occurs: forward, gradient of inputs and of weights.

    Attention itself is left out: it is not one matrix product, and 2 % of these FLOPs at a length of 256.
    """
    tokens, width, hidden = shape.tokens, shape.width, shape.hidden
    linear = {(width, 3 * width): 1, (width, width): 1, (width, hidden): 2, (hidden, width): 1}  # gate and up: two
    times = shape.layers * shape.loops
    layers = {size: count * times for size, count in linear.items()} | {(width, shape.vocabulary): shape.loops}
    for (inputs, outputs), count in layers.items():
        yield (tokens, outputs, inputs), count
        yield (tokens, inputs, outputs), count
        yield (outputs, inputs, tokens), count


def step_flops(shape: Shape) -> float:
    """FLOPs of the matrix products of a step."""
    return sum(2.0 * rows * columns * inner * count for (rows, columns, inner), count in products(shape))


def ceiling_seconds(shape: Shape, *, device: str, dtype: torch.dtype, repeats: int = 5) -> float:
    """Return the time of a step that consists of its matrix products alone, medians of ``repeats``."""
    return sum(count * _seconds(product, device, dtype, repeats) for product, count in products(shape))


def square_rate(*, device: str, dtype: torch.dtype, size: int = 1024, repeats: int = 5) -> float:
    """FLOP/s of a square product."""
    return 2.0 * size**3 / _seconds((size, size, size), device, dtype, repeats)


def _seconds(product: Product, device: str, dtype: torch.dtype, repeats: int) -> float:
    """Return the median time of a product of random matrices; the first call chooses a kernel and does not count."""
    rows, columns, inner = product
    a = torch.randn(rows, inner, device=device).to(dtype)
    b = torch.randn(columns, inner, device=device).to(dtype)  # as nn.Linear keeps its weight
    times = []
    for _ in range(repeats + 1):
        start = _now(device)
        torch.mm(a, b.T)
        times.append(_now(device) - start)
    return statistics.median(times[1:])


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
