"""Which parameters are trained, and in which group of the optimizer each one is."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from loopkit.components.optimizer import ParameterGroup, Role
from loopkit.errors import UserError


def freeze(model: nn.Module, trainable: Sequence[str]) -> list[str]:
    """Let only the parameters that a pattern matches receive gradients.

    Args:
        model: The model; a parameter with several names is matched by any of them.
        trainable: Glob patterns over parameter names, such as ``gate.*``.

    Returns:
        Names of the trained parameters.

    Raises:
        ValueError: If a pattern matches nothing, with some of the names there are.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for pattern in trainable:
        if not any(fnmatchcase(name, pattern) for known in names.values() for name in known):
            tops = sorted({name.partition(".")[0] + ".*" for known in names.values() for name in known})
            raise UserError(f"train.trainable: no parameter matches {pattern!r}; there are {', '.join(tops)}")
    for parameter in model.parameters():
        known = names[id(parameter)]
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for name in known for pattern in trainable))
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def parameter_groups(model: nn.Module) -> list[ParameterGroup]:
    """Sort the trained parameters by role and by whether their component lets them decay; each is in one group."""
    spared = {
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
            kind = role, id(parameter) not in spared
            members.setdefault(kind, []).append((name.removeprefix("model."), parameter))
    return [
        ParameterGroup(
            role if decay else f"{role}_no_decay",
            [parameter for _, parameter in found],
            role,
            decay,
            names=tuple(name for name, _ in found),
            stacked=stacked,
        )
        for (role, decay), found in members.items()
    ]


def _stacked(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """Rows of the matrices in a parameter, by identity, where its component says that it holds several."""
    found: dict[int, tuple[int, ...]] = {}
    for module in model.modules():
        declared: dict[str, tuple[int, ...]] = getattr(module, "stacked_rows", dict)()
        if declared:
            own = dict(module.named_parameters())  # an adapter may have put another parameter in its place
            found |= {id(own[name]): rows for name, rows in declared.items() if name in own}
    return found


def _role(name: str, parameter: nn.Parameter) -> Role:
    """What a parameter is for, by the part of the model it sits in and its number of dimensions."""
    top = name.removeprefix("model.").partition(".")[0]
    if parameter.dim() < 2:
        return "vector"
    if top in ("embedding", "position"):
        return "embedding"
    return "head" if top == "head" else "matrix"
