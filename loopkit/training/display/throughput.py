"""How fast training goes: tokens and floating-point operations a second, against the most the devices can do."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Throughput:
    """Counts what is done between two lines of metrics, and how long it took.

    Args:
        peak_flops: FLOP/s that all devices together can do at most; None where it is not known.
        device: Whose memory is watched.
    """

    def __init__(self, peak_flops: float | None, device: torch.device) -> None:
        self.peak, self.device = peak_flops, device
        self.start()

    def start(self) -> None:
        """Begin to count anew."""
        self._steps, self._tokens = 0, 0
        self._flops: float | None = 0.0
        self._began = time.perf_counter()

    def add(self, tokens: int, flops: float | None) -> None:
        """One optimizer step is over.

        Args:
            tokens: Its real tokens, over all ranks.
            flops: Its floating-point operations, over all ranks; None where they are not known.
        """
        self._steps += 1
        self._tokens += tokens
        self._flops = None if self._flops is None or flops is None else self._flops + flops

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside of the block is no part of a step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._began += time.perf_counter() - began

    def read(self) -> dict[str, Any]:
        """The speed since the last reading: ``tokens_per_s``, ``mfu``, ``step_s``, ``peak_memory_bytes``."""
        seconds = time.perf_counter() - self._began
        found = {
            "tokens_per_s": self._tokens / seconds,
            "mfu": None if self._flops is None or self.peak is None else self._flops / seconds / self.peak,
            "step_s": seconds / self._steps,
            "peak_memory_bytes": peak_memory(self.device),
        }
        self.start()
        return found


def peak_memory(device: torch.device) -> int:
    """Most bytes in use so far: allocated on a GPU, resident in the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # Linux counts in KiB
