"""Calls of part of a model in a precision other than that of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call


class _Call(nn.Module):
    """Modules that a function uses, so that their parameters can be replaced while it runs."""

    def __init__(self, modules: Mapping[str, nn.Module], function: Callable[[], Tensor]) -> None:
        super().__init__()
        self.used = nn.ModuleDict(dict(modules))
        self.function = function

    def forward(self) -> Tensor:
        return self.function()


def call_in(dtype: torch.dtype, modules: Mapping[str, nn.Module], function: Callable[[], Tensor]) -> Tensor:
    """Call a function while parameters and buffers of some modules are in ``dtype``; eager, without autocast."""
    call = _Call(modules, function)
    tensors = [*call.named_parameters(), *call.named_buffers()]
    cast = {name: tensor.to(dtype) for name, tensor in tensors if tensor.is_floating_point()}
    device = next((tensor.device.type for _, tensor in tensors), "cpu")
    with torch.autocast(device, enabled=False), torch.compiler.set_stance("force_eager"):
        result: Tensor = functional_call(call, cast)
    return result
