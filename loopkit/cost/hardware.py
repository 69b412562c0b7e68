"""The table of GPUs (memory, arithmetic and links, from data sheets), and the peak FLOP/s of a device, for MFU."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from loopkit.cost.matmul_rate import measure_matmul_rate
from loopkit.errors import UserError


@dataclass(frozen=True)
class GPU:
    """One GPU model.

    Args:
        name: Its model, as torch reports it without the vendor's words.
        memory: Bytes.
        flops_per_s: Dense bf16 matrix products with fp32 accumulation.
        link: Bytes per second that one GPU sends to the others in its machine, in one direction, by NVLink or PCIe.
    """

    name: str
    memory: float
    flops_per_s: float
    link: float


GPUS = (
    GPU("B200", 180e9, 2250e12, 900e9),
    GPU("H200", 141e9, 989e12, 450e9),
    GPU("GH200", 141e9, 989e12, 450e9),
    GPU("H100", 80e9, 989e12, 450e9),
    GPU("H100 PCIe", 80e9, 756e12, 64e9),
    GPU("H100 NVL", 94e9, 835e12, 300e9),
    GPU("A100", 80e9, 312e12, 300e9),
    GPU("L40S", 48e9, 362e12, 32e9),
    GPU("L40", 48e9, 181e12, 32e9),
    GPU("L4", 24e9, 121e12, 32e9),
    GPU("A10", 24e9, 125e12, 32e9),
    GPU("A40", 48e9, 150e12, 32e9),
    GPU("A6000", 48e9, 155e12, 32e9),
    GPU("RTX 4090", 24e9, 165e12, 32e9),
    GPU("RTX 3090", 24e9, 71e12, 32e9),
)

MEMORY_SHARE = 0.85
"""Share of a GPU's memory that training may use; kernel workspaces and fragmentation take the remainder."""

_VENDOR = {"nvidia", "geforce", "tesla", "rtx"}
_FORM = re.compile(r"sxm\d?|pcie|\d+gb|hbm\w+")
"""Words for a form factor or a memory, which change no rate. ``Laptop``, ``Ti`` and ``MIG`` denote another GPU."""


def find_gpu(name: str) -> GPU:
    """Look up a GPU by the name that a user typed, in upper or lower case.

    Raises:
        UserError: If the table does not contain it; the message lists the names.
    """
    for gpu in GPUS:
        if gpu.name.lower().replace(" ", "") == name.lower().replace(" ", "").replace("-", ""):
            return gpu
    names = ", ".join(sorted(gpu.name for gpu in GPUS))
    raise UserError(f"--gpu {name}: unknown GPU; known: {names}. For others, give --flops and --memory")


def match_gpu(device_name: str) -> GPU | None:
    """Look up a GPU by the name that torch reports, such as ``NVIDIA A100-SXM4-80GB``; None if it is not in the table.

    Names are compared word by word, so that an ``RTX A1000`` is not an ``A100`` and an ``A10G`` not an ``A10``.
    """
    words = _words(device_name)
    matches = [
        gpu
        for gpu in GPUS
        if words[:1] == (model := _words(gpu.name))[:1]
        and set(model) <= set(words)
        and all(word in model or _FORM.fullmatch(word) for word in words)
    ]
    return max(matches, key=lambda gpu: len(_words(gpu.name)), default=None)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s-]+", name.lower()) if word and word not in _VENDOR]


@dataclass(frozen=True)
class Ceiling:
    """The peak FLOP/s of a device.

    Args:
        flops_per_s: Floating-point operations per second.
        source: ``table``, ``matmul`` (measured) or ``given``.
        device: Name of the device.
        dtype: Of the factors of its matrix products.
    """

    flops_per_s: float
    source: str
    device: str
    dtype: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def data_sheet_ceiling(device: torch.device, dtype: torch.dtype) -> Ceiling | None:
    """Look up the peak of a device; None if the table does not contain it for this dtype."""
    gpu = match_gpu(_device_name(device)) if dtype is torch.bfloat16 else None
    return None if gpu is None else Ceiling(gpu.flops_per_s, "table", _device_name(device), _dtype_name(dtype))


def measured_ceiling(device: torch.device, dtype: torch.dtype) -> Ceiling:
    """Measure the peak of a device for half a second."""
    rate = measure_matmul_rate(device, dtype, 0.5)
    return Ceiling(rate, "matmul", _device_name(device), _dtype_name(dtype))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def recipe_ceiling(device: torch.device, precision: str) -> Ceiling:
    """Look up or measure the peak of a device in a recipe's arithmetic; each process measures it once.

    Args:
        device: Where training runs.
        precision: ``train.precision``.
    """
    dtype = matmul_dtype(precision)
    return data_sheet_ceiling(device, dtype) or measured_ceiling(device, dtype)


def matmul_dtype(precision: str) -> torch.dtype:
    """Return the dtype of the factors of matrix products under ``train.precision``."""
    return torch.bfloat16 if precision == "bf16_autocast" else torch.float32
