"""Trained parameters, and their groups in the optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from loopkit.components.optimizer import ParameterGroup, Role
from loopkit.errors import UserError


def freeze(model: nn.Module, trainable: Sequence[str]) -> list[str]:
    """Freeze all parameters except those that a pattern matches.

    Args:
        model: The model; a parameter with several names is matched by any of them.
        trainable: Glob patterns over parameter names, such as ``gate.*``.

    Returns:
        Names of the trained parameters.

    Raises:
        UserError: If a pattern matches nothing; the message lists valid patterns.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for pattern in trainable:
        if not any(fnmatchcase(name, pattern) for aliases in names.values() for name in aliases):
            tops = sorted({name.partition(".")[0] + ".*" for aliases in names.values() for name in aliases})
            raise UserError(f"train.trainable: no parameter matches {pattern!r}; there are {', '.join(tops)}")
    for parameter in model.parameters():
        aliases = names[id(parameter)]
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for name in aliases for pattern in trainable))
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def parameter_groups(model: nn.Module) -> list[ParameterGroup]:
    """Group the trained parameters by role and weight decay; each parameter is in exactly one group."""
    no_decay = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters()
        if name in getattr(type(module), "no_decay", ())
    }
    stacked = _stacked(model)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    members: dict[tuple[Role, bool], list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            role: Role = "embedding" if id(parameter) in tables else _role(name, parameter)
            kind = role, id(parameter) not in no_decay
            members.setdefault(kind, []).append((name.removeprefix("model."), parameter))
    return [
        ParameterGroup(
            role if decay else f"{role}_no_decay",
            [parameter for _, parameter in named],
            role,
            decay,
            names=tuple(name for name, _ in named),
            stacked=stacked,
        )
        for (role, decay), named in members.items()
    ]


def _stacked(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """Rows of the stacked matrices in a parameter, by identity, as ``stacked_rows`` of its module declares."""
    rows_of: dict[int, tuple[int, ...]] = {}
    for module in model.modules():
        declared: dict[str, tuple[int, ...]] = getattr(module, "stacked_rows", dict)()
        if declared:
            own = dict(module.named_parameters())  # an adapter may have put another parameter in its place
            rows_of |= {id(own[name]): rows for name, rows in declared.items() if name in own}
    return rows_of


def _role(name: str, parameter: nn.Parameter) -> Role:
    """Role of a parameter, from its part of the model and its number of dimensions."""
    top = name.removeprefix("model.").partition(".")[0]
    if parameter.dim() < 2:
        return "vector"
    if top in ("embedding", "position"):
        return "embedding"
    return "head" if top == "head" else "matrix"
