"""Sharing of parameters and modules between parts of a model, such as head and embedding."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from torch import nn

from loopkit.errors import UserError


def tie(model: nn.Module, pairs: Mapping[str, str]) -> None:
    """Replace each sharer by its owner object; both are modules, or both parameters.

    Args:
        model: The root of the paths.
        pairs: Path of the sharer to path of the owner, such as ``{"coda.norm": "readout.norm"}``.

    Raises:
        UserError: If a path does not exist, or the shapes differ.
    """
    for sharer, owner in pairs.items():
        old, new = _find(model, sharer), _find(model, owner)
        if _shapes(old) != _shapes(new):
            raise UserError(f"model.tie: '{sharer}' {_shapes(old)} and '{owner}' {_shapes(new)} differ in shape")
        parent, _, leaf = sharer.rpartition(".")
        setattr(model.get_submodule(parent), leaf, new)


def _find(model: nn.Module, path: str) -> nn.Module | nn.Parameter:
    modules = dict(model.named_modules(remove_duplicate=False))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if path in parameters:
        return parameters[path]
    if path and path in modules:
        return modules[path]
    close = difflib.get_close_matches(path, [*modules, *parameters], n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"parts: {', '.join(name for name, _ in model.named_children())}"
    raise UserError(f"model.tie: the model has no '{path}'; {hint}")


def _shapes(part: nn.Module | nn.Parameter) -> list[int] | dict[str, list[int]]:
    if isinstance(part, nn.Parameter):
        return list(part.shape)
    return {name: list(parameter.shape) for name, parameter in part.named_parameters()}
