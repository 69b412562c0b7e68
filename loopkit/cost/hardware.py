"""The table of GPUs: memory, arithmetic and links, from data sheets; to plan for one, and to measure MFU against it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loopkit.errors import UserError


@dataclass(frozen=True)
class Accelerator:
    """One kind of GPU.

    Args:
        name: Its model, as torch reports it without the vendor's words.
        memory: Bytes.
        flops_per_s: Dense bf16 matrix products with fp32 accumulation.
        link: Bytes a second that one GPU sends to its neighbours in the same machine, in one direction, by NVLink or
            PCIe.
    """

    name: str
    memory: float
    flops_per_s: float
    link: float


ACCELERATORS = (
    Accelerator("B200", 180e9, 2250e12, 900e9),
    Accelerator("H200", 141e9, 989e12, 450e9),
    Accelerator("GH200", 141e9, 989e12, 450e9),
    Accelerator("H100", 80e9, 989e12, 450e9),
    Accelerator("H100 PCIe", 80e9, 756e12, 64e9),
    Accelerator("H100 NVL", 94e9, 835e12, 300e9),
    Accelerator("A100", 80e9, 312e12, 300e9),
    Accelerator("L40S", 48e9, 362e12, 32e9),
    Accelerator("L40", 48e9, 181e12, 32e9),
    Accelerator("L4", 24e9, 121e12, 32e9),
    Accelerator("A10", 24e9, 125e12, 32e9),
    Accelerator("A40", 48e9, 150e12, 32e9),
    Accelerator("A6000", 48e9, 155e12, 32e9),
    Accelerator("RTX 4090", 24e9, 165e12, 32e9),
    Accelerator("RTX 3090", 24e9, 71e12, 32e9),
)

_VENDOR = {"nvidia", "geforce", "tesla", "rtx"}
_FORM = re.compile(r"sxm\d?|pcie|\d+gb|hbm\w+")
"""Words that name a form or a memory, and change no rate. ``Laptop``, ``Ti`` or ``MIG`` make another GPU."""


def accelerator(name: str) -> Accelerator:
    """A GPU by its name, in upper or lower case.

    Raises:
        UserError: If the table does not have it, with those that it has.
    """
    for known in ACCELERATORS:
        if known.name.lower().replace(" ", "") == name.lower().replace(" ", "").replace("-", ""):
            return known
    names = ", ".join(sorted(known.name for known in ACCELERATORS))
    raise UserError(f"--gpu {name}: not in the table; give --flops and --memory instead. There are: {names}")


def accelerator_of(device_name: str) -> Accelerator | None:
    """The GPU that torch reports by this name, such as ``NVIDIA A100-SXM4-80GB``; None if the table does not have it.

    Names are compared word by word, so that an ``RTX A1000`` is not an ``A100`` and an ``A10G`` not an ``A10``.
    """
    words = _words(device_name)
    fits = [
        known
        for known in ACCELERATORS
        if words[:1] == (own := _words(known.name))[:1]
        and set(own) <= set(words)
        and all(word in own or _FORM.fullmatch(word) for word in words)
    ]
    return max(fits, key=lambda known: len(_words(known.name)), default=None)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s-]+", name.lower()) if word and word not in _VENDOR]
