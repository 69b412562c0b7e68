"""DeepSpeed, started quickly and without its chatter."""

from __future__ import annotations

import logging
import os
import warnings
from types import ModuleType

import torch

from loopkit.errors import UserError

_OPS = {"deepspeed_shm_comm": False, "deepspeed_not_implemented": False}


def deepspeed(device: torch.device, verbose: bool = False) -> ModuleType:
    """Import DeepSpeed for a device.

    Left to itself it probes for compilers, compiles a shared-memory operator at the first start on a CPU (half a
    minute, and a crash where there is no compiler or no ``ninja``), and says a lot. Nothing compiled is needed here.

    Args:
        device: Where training runs; DeepSpeed would otherwise choose on its own.
        verbose: Let it speak.

    Raises:
        ValueError: If this program has already started DeepSpeed for another kind of device.
    """
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    # it unpickles without restriction wherever it loads; nothing here asks it to, and no key of its configuration shall
    os.environ.setdefault("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    logging.getLogger("DeepSpeed").setLevel(logging.INFO if verbose else logging.ERROR)
    import deepspeed as module
    from deepspeed.accelerator import get_accelerator

    level = logging.INFO if verbose else logging.ERROR  # its own import has set both back
    logger = logging.getLogger("DeepSpeed")
    logger.setLevel(level)
    for handler in logger.handlers:
        handler.setLevel(level)
    if (found := get_accelerator().device_name()) != device.type:
        raise UserError(
            f"DeepSpeed runs on {found} in this program and cannot change to {device.type}; "
            "start another process, or unset DS_ACCELERATOR"
        )
    # its own table is filled by running compilers when first looked at; a table that is there is taken as it is
    vars(module.ops).setdefault("__compatible_ops__", {}).update(_OPS)
    return module


def silence_warnings() -> None:
    """Ignore the warnings that torch gives DeepSpeed for its use of older names; users can do nothing about them."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed.*")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"deepspeed.*")
