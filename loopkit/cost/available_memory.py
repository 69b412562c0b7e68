"""How much memory a device has for training."""

from __future__ import annotations

import os
from pathlib import Path

import torch

GPU_SHARE = 0.85
"""Of a GPU's free memory; the rest is for kernels' workspaces and fragments."""
CPU_SHARE = 0.25
"""Of a machine's memory: other programs need some, and a processor gains nothing from larger micro-batches."""


def budget(device: torch.device) -> float:
    """Bytes that training may take on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return GPU_SHARE * free
    return min(CPU_SHARE * machine_memory(), 0.8 * available_memory())


def machine_memory() -> int:
    """Bytes of memory that this process may use at most: the machine's, or its container's."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_container_limits()])


def available_memory() -> int:
    """Bytes that can be taken now without swapping; the machine's memory where the system does not say."""
    info = Path("/proc/meminfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return machine_memory()


def _container_limits() -> list[int]:
    found = []
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = Path("/sys/fs/cgroup") / name
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            found.append(int(text))
    return found
