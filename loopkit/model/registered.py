"""Find submodules, parameters and tensors that a module holds without registering them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from loopkit.errors import UserError


def check_registered(model: nn.Module) -> None:
    """Refuse a model with parameters or tensors that torch does not know of: they would not be moved, trained or saved.

    Args:
        model: Built on ``meta``, where every tensor that a constructor made is still on ``meta``.

    Raises:
        UserError: Naming module, attribute and remedy.
    """
    known = {id(part) for part in [*model.modules(), *model.parameters(), *model.buffers()]}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute in ("_parameters", "_buffers", "_modules"):
                continue
            for part in _parts(value):
                if id(part) not in known and (what := _lost(part)):
                    where = f"{type(module).__name__} at '{name}'"
                    raise UserError(f"{where}: attribute {attribute!r} holds {what}")


def _lost(part: Any) -> str:
    """What is lost, and how it is registered; empty for what needs no registration."""
    if isinstance(part, nn.Module) and any(True for _ in (*part.parameters(), *part.buffers())):
        return "modules in a plain container, which torch neither moves nor trains nor saves; use nn.ModuleList"
    if isinstance(part, nn.Parameter):
        return "parameters in a plain container, which torch neither moves nor trains nor saves; use nn.ParameterList"
    if isinstance(part, torch.Tensor) and part.is_meta:
        return "a tensor that is not registered, which torch neither moves nor saves; use register_buffer"
    return ""


def _parts(value: Any, depth: int = 2) -> Iterator[Any]:
    """A value, or what plain containers hold."""
    if isinstance(value, nn.Module | torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | set | dict) and depth:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts(item, depth - 1)
