"""Detection of modules, parameters and tensors that a module holds without registering them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from loopkit.errors import UserError


def check_registered(model: nn.Module) -> None:
    """Reject a model with unregistered parameters or tensors, which torch would not move, train or save.

    Args:
        model: Built on ``meta``, so that every tensor created by a constructor is still on ``meta``.

    Raises:
        UserError: With module, attribute and fix.
    """
    registered = {id(part) for part in [*model.modules(), *model.parameters(), *model.buffers()]}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute in ("_parameters", "_buffers", "_modules"):
                continue
            for part in _parts(value):
                if id(part) not in registered and (problem := _unregistered(part)):
                    where = f"{type(module).__name__} at '{name}'"
                    raise UserError(f"{where}: attribute {attribute!r} holds {problem}")


def _unregistered(part: Any) -> str:
    """Description of an unregistered part and how to register it; empty if it needs no registration."""
    if isinstance(part, nn.Module) and any(True for _ in (*part.parameters(), *part.buffers())):
        return "modules in a plain container, which torch neither moves nor trains nor saves; use nn.ModuleList"
    if isinstance(part, nn.Parameter):
        return "parameters in a plain container, which torch neither moves nor trains nor saves; use nn.ParameterList"
    if isinstance(part, torch.Tensor) and part.is_meta:
        return "a tensor that is not registered, which torch neither moves nor saves; use register_buffer"
    return ""


def _parts(value: Any, depth: int = 2) -> Iterator[Any]:
    """Yield a value, or the items of plain containers."""
    if isinstance(value, nn.Module | torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | set | dict) and depth:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts(item, depth - 1)
