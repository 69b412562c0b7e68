"""Weights as safetensors, with one copy of what is shared."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from loopkit.errors import UserError


class WeightsError(UserError):
    """Weights in a file do not match a model; the message lists the tensors and reasons."""


def save_weights(model: nn.Module, path: Path) -> None:
    """Write all parameters and buffers; a shared one once, under its first name.

    Args:
        model: On any real device.
        path: File to write; overwritten.
    """
    tensors = {names[0]: tensor.detach().contiguous().cpu() for tensor, names in _places(model)}
    save_file(tensors, path, metadata={"format": "pt"})


def load_weights(model: nn.Module, path: Path, *, strict: bool = True) -> list[str]:
    """Load weights into a model, in place and converted to its precision; on an error the model is unchanged.

    Args:
        model: The model to fill.
        path: A safetensors file. A shared tensor may stand under any of its names.
        strict: Whether every tensor of the model must be in the file and the reverse.

    Returns:
        Problems that ``strict=False`` ignored, one line each.

    Raises:
        WeightsError: If the file cannot be read, or names or shapes differ.
    """
    try:
        with safe_open(path, framework="pt") as file:
            saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file: {error}") from error
    plan: list[tuple[Tensor, Tensor]] = []
    missing, problems = [], []
    for tensor, names in _places(model):
        names_in_file = [name for name in names if name in saved]
        values = [saved.pop(name) for name in names_in_file]
        if not values:
            missing.append(" = ".join(names))
        elif values[0].shape != tensor.shape:
            problems.append(f"{names_in_file[0]}: the file has {list(values[0].shape)}, the model {list(tensor.shape)}")
        elif any(not torch.equal(values[0], other) for other in values[1:]):
            problems.append(f"{' and '.join(names_in_file)}: shared in the model, different in the file")
        else:
            plan.append((tensor, values[0]))
    absent = [f"missing in the file: {name}" for name in missing] + [f"unknown to the model: {name}" for name in saved]
    if problems or (strict and absent):
        raise WeightsError(f"{path}: these weights do not fit the model\n  " + "\n  ".join([*problems, *absent]))
    with torch.no_grad():
        for tensor, value in plan:
            tensor.copy_(value)
    return absent


def _places(model: nn.Module) -> list[tuple[Tensor, list[str]]]:
    """Return every tensor of the model with all its names."""
    names: dict[int, list[str]] = defaultdict(list)
    tensors: dict[int, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names[id(tensor)].append(name)
        tensors[id(tensor)] = tensor
    return [(tensors[key], names[key]) for key in names]
