"""Context of a measurement: evaluation mode, arithmetic, split, and their names in results."""

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
def evaluation_mode(model: LoopedModel, dtype: Dtype) -> Iterator[None]:
    """Put a model into evaluation mode without gradients, in the given arithmetic; restore its mode afterwards."""
    training = model.training
    device = next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == "bf16_autocast"):
            yield
    finally:
        model.train(training)


def get_split(prepared: Prepared, name: str) -> Split:
    """Return a split of the data.

    Raises:
        UserError: If it was not prepared.
    """
    if name not in prepared.splits:
        raise UserError(f"split {name!r} was not prepared; prepared splits: {', '.join(prepared.splits)}")
    return prepared.splits[name]


def tokenizer_facts(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return ``type``, ``size`` and ``fingerprint`` of a tokenizer."""
    name = type(tokenizer).registration.name  # type: ignore[attr-defined]
    return {"type": name, "size": tokenizer.size, "fingerprint": tokenizer.fingerprint()[:12]}


def device_name(device: torch.device) -> str:
    """Return the name of a device in results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
