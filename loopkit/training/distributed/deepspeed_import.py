"""Import DeepSpeed quickly, and without its log messages."""

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

    By default DeepSpeed probes for compilers, compiles a shared-memory operator at the first start on a CPU (half a
    minute, and a crash without a compiler or ``ninja``), and logs a lot. loopkit needs no compiled operator.

    Args:
        device: Where training runs; DeepSpeed would otherwise select one.
        verbose: Show DeepSpeed's own messages.

    Raises:
        UserError: If this program has already imported DeepSpeed for another kind of device.
    """
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    # DeepSpeed unpickles without restriction when it loads; loopkit does not use that, and no configuration key may
    os.environ.setdefault("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    logging.getLogger("DeepSpeed").setLevel(logging.INFO if verbose else logging.ERROR)
    import deepspeed as module
    from deepspeed.accelerator import get_accelerator

    level = logging.INFO if verbose else logging.ERROR  # the import resets both
    logger = logging.getLogger("DeepSpeed")
    logger.setLevel(level)
    for handler in logger.handlers:
        handler.setLevel(level)
    if (active := get_accelerator().device_name()) != device.type:
        raise UserError(
            f"DeepSpeed runs on {active} in this program and cannot change to {device.type}; "
            "start another process, or unset DS_ACCELERATOR"
        )
    # DeepSpeed runs compilers to fill this table, unless the table exists
    vars(module.ops).setdefault("__compatible_ops__", {}).update(_OPS)
    return module


def silence_warnings() -> None:
    """Ignore torch's deprecation warnings about DeepSpeed, which users cannot fix."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed.*")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"deepspeed.*")
