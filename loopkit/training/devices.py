"""Accelerators that can be planned for without having one: memory, arithmetic, and links, from data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from loopkit.errors import UserError
from loopkit.training.ceiling import DENSE_BF16


@dataclass(frozen=True)
class Accelerator:
    """One kind of GPU.

    Args:
        name: As the table has it.
        memory: Bytes.
        flops_per_s: Dense bf16 matrix products.
        link: Bytes a second that one GPU sends to its neighbours in the same machine, in one direction.
    """

    name: str
    memory: float
    flops_per_s: float
    link: float


_MEMORY_AND_LINK: dict[str, tuple[float, float]] = {
    "B200": (180e9, 900e9),
    "H200": (141e9, 450e9),
    "GH200": (141e9, 450e9),
    "H100": (80e9, 450e9),
    "H100 PCIe": (80e9, 64e9),
    "H100 NVL": (94e9, 300e9),
    "A100": (80e9, 300e9),
    "L40S": (48e9, 32e9),
    "L40": (48e9, 32e9),
    "L4": (24e9, 32e9),
    "A10": (24e9, 32e9),
    "A40": (48e9, 32e9),
    "A6000": (48e9, 32e9),
    "RTX 4090": (24e9, 32e9),
    "RTX 3090": (24e9, 32e9),
}
"""Bytes of memory, and NVLink or PCIe in one direction."""


def accelerator(name: str) -> Accelerator:
    """A GPU by its name, in upper or lower case.

    Raises:
        ValueError: If the table does not have it, with those that it has.
    """
    for known, (memory, link) in _MEMORY_AND_LINK.items():
        if known.lower().replace(" ", "") == name.lower().replace(" ", "").replace("-", ""):
            return Accelerator(known, memory, DENSE_BF16[known], link)
    names = ", ".join(sorted(_MEMORY_AND_LINK))
    raise UserError(f"--gpu {name}: not in the table; give --flops and --memory instead. There are: {names}")
