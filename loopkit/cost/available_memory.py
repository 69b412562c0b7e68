"""The memory that a device has available for training."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from loopkit.cost.hardware import MEMORY_SHARE

CPU_SHARE = 0.25
"""Share of a machine's memory: other programs need some, and a CPU gains nothing from larger micro-batches."""


def memory_budget(device: torch.device) -> float:
    """Return the bytes that training may use on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return MEMORY_SHARE * free
    return min(CPU_SHARE * total_memory(), 0.8 * psutil.virtual_memory().available)


def total_memory() -> int:
    """Return the bytes of memory of the machine, or of its container if that is less."""
    return min([psutil.virtual_memory().total, *_container_limits()])


def _container_limits() -> list[int]:
    """Memory limits of cgroups, which psutil does not read."""
    limits = []
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        path = Path("/sys/fs/cgroup") / name
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            limits.append(int(text))
    return limits
