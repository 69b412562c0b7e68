"""Throughput of training: tokens per second, FLOP/s relative to the peak of the devices (MFU), memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Throughput:
    """Count steps, tokens, FLOPs and seconds between two lines of metrics.

    Args:
        peak_flops: Peak FLOP/s of all devices together; None if unknown.
        device: The device whose memory is reported.
    """

    def __init__(self, peak_flops: float | None, device: torch.device) -> None:
        self.peak, self.device = peak_flops, device
        self.start()

    def start(self) -> None:
        """Reset the counts."""
        self._steps, self._tokens = 0, 0
        self._flops: float | None = 0.0
        self._start = time.perf_counter()

    def add(self, tokens: int, flops: float | None) -> None:
        """Count an optimizer step.

        Args:
            tokens: Its real tokens, over all ranks.
            flops: Its floating-point operations, over all ranks; None if they cannot be counted.
        """
        self._steps += 1
        self._tokens += tokens
        self._flops = None if self._flops is None or flops is None else self._flops + flops

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - start

    def read(self) -> dict[str, Any]:
        """Return the throughput since the last call: ``tokens_per_s``, ``mfu``, ``step_s``, ``peak_memory_bytes``."""
        seconds = time.perf_counter() - self._start
        throughput = {
            "tokens_per_s": self._tokens / seconds,
            "mfu": None if self._flops is None or self.peak is None else self._flops / seconds / self.peak,
            "step_s": seconds / self._steps,
            "peak_memory_bytes": peak_memory(self.device),
        }
        self.start()
        return throughput


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: allocated on a GPU, resident in the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
