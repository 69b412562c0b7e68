"""What every measurement of a model needs around it: its mode, its arithmetic, its data, and the names of these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch

from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.components.tokenizer import Tokenizer
    from loopkit.data import Prepared, Split
    from loopkit.model import LoopedModel

Dtype = Literal["fp32", "bf16_autocast"]


@contextmanager
def ready(model: LoopedModel, device: torch.device, dtype: Dtype) -> Iterator[None]:
    """The model in evaluation mode, without gradient, in the arithmetic asked for; afterwards in the mode it had."""
    training = model.training
    model.to(device).eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == "bf16_autocast"):
            yield
    finally:
        model.train(training)


def split_of(prepared: Prepared, name: str) -> Split:
    """A split of the data.

    Raises:
        ValueError: If it was not prepared.
    """
    if name not in prepared.splits:
        raise UserError(f"there is no split {name!r} here; this data was prepared with {', '.join(prepared.splits)}")
    return prepared.splits[name]


def tokenizer_facts(tokenizer: Tokenizer) -> dict[str, Any]:
    """``type``, ``size`` and ``fingerprint`` of a tokenizer."""
    name = type(tokenizer).registration.name  # type: ignore[attr-defined]
    return {"type": name, "size": tokenizer.size, "fingerprint": tokenizer.fingerprint()[:12]}


def device_name(device: torch.device) -> str:
    """What a device is called in results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
