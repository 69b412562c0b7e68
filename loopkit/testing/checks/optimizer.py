"""Optimizers: they update every parameter at the rate of its group, and their state can be saved."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from loopkit.components.optimizer import ParameterGroup
from loopkit.plural import plural
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND = ("optimizer",)
SHAPES: dict[str, tuple[int, ...]] = {"matrix": (6, 4), "vector": (5,), "embedding": (7, 4), "head": (7, 4)}


def parameter_groups() -> list[ParameterGroup]:
    """One group of each role, and one without weight decay."""
    generator = torch.Generator().manual_seed(0)

    def parameters(shape: tuple[int, ...]) -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(torch.randn(*shape, generator=generator)) for _ in range(2)]

    groups = [ParameterGroup(role, parameters(shape), role) for role, shape in SHAPES.items()]  # type: ignore[arg-type]
    return [*groups, ParameterGroup("vector_no_decay", parameters((5,)), "vector", decay=False)]


def all_parameters(groups: list[ParameterGroup]) -> list[torch.nn.Parameter]:
    return [parameter for group in groups for parameter in group.params]


def steps(optimizer: torch.optim.Optimizer, groups: list[ParameterGroup], num_steps: int, lr: float = 0.01) -> None:
    """Minimise the sum of squares for some steps, with the learning rate set as the trainer sets it."""
    for _ in range(num_steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)
        optimizer.zero_grad()
        sum((parameter.square().sum() for parameter in all_parameters(groups)), torch.zeros(())).backward()
        optimizer.step()


@rule("covers", KIND, after=("builds",))
def covers(subject: ComponentUnderTest) -> None:
    """It builds a torch optimizer over every parameter, each once."""
    groups = parameter_groups()
    with report_as_violation("it does not build an optimizer", "return a torch.optim.Optimizer over all groups"):
        optimizer = subject.build().build(groups)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Violation("build() does not return a torch.optim.Optimizer", type(optimizer).__name__)
    identifiers = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    expected = [id(parameter) for parameter in all_parameters(groups)]
    if sorted(identifiers) != sorted(expected):
        shared = len(set(identifiers) & set(expected))
        seen = f"{plural(len(identifiers), 'parameter')}, {shared} of the {len(expected)} given"
        raise Violation("it does not take each parameter exactly once", seen)


@rule("descends", KIND, after=("covers",))
def descends(subject: ComponentUnderTest) -> None:
    """Its steps reduce a loss for each role, stay finite, and change nothing at a learning rate of 0."""
    for variant in subject.variants:
        groups = parameter_groups()
        optimizer = subject.build(variant.options).build(groups)
        before = [parameter.detach().clone() for parameter in all_parameters(groups)]
        steps(optimizer, groups, 1, lr=0.0)
        if not all(torch.equal(old, new) for old, new in zip(before, all_parameters(groups), strict=True)):
            raise Violation(
                "it changes parameters at a learning rate of 0", variant.name, "the trainer sets group['lr']"
            )
        steps(optimizer, groups, 10)
        for group in groups:
            for parameter, old in zip(group.params, before[: len(group.params)], strict=True):
                if not parameter.isfinite().all():
                    raise Violation(f"its steps make a {group.role} that is not finite", variant.name)
                if not parameter.square().sum() < old.square().sum():
                    raise Violation(f"its steps do not reduce a loss for a {group.role}", variant.name)
            del before[: len(group.params)]


@rule("decay", KIND, after=("descends",))
def decay(subject: ComponentUnderTest) -> None:
    """A parameter without weight decay does not change if its gradient is zero."""
    groups = parameter_groups()
    optimizer = subject.build().build(groups)
    undecayed = groups[-1].params
    before = [parameter.detach().clone() for parameter in undecayed]
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in all_parameters(groups):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    if not all(torch.equal(old, new) for old, new in zip(before, undecayed, strict=True)):
        raise Violation(
            "it decays a parameter of a group without decay", hint="set weight_decay to 0 if group.decay is False"
        )


@rule("state", KIND, after=("descends",))
def state(subject: ComponentUnderTest) -> None:
    """Its state holds scalars or tensors of the parameter's shape, and resuming from it is exact."""
    groups = parameter_groups()
    optimizer = subject.build().build(groups)
    steps(optimizer, groups, 2)
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if not _storable(value, parameter):
                seen = f"{name}: {list(value.shape) if isinstance(value, Tensor) else type(value).__name__}"
                raise Violation("its state cannot be saved for another ZeRO stage", seen)
    new_groups = parameter_groups()
    with torch.no_grad():
        for new, old in zip(all_parameters(new_groups), all_parameters(groups), strict=True):
            new.copy_(old)
    resumed = subject.build().build(new_groups)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # like a file, the copy shares no memory
    steps(optimizer, groups, 2)
    steps(resumed, new_groups, 2)
    if not all(
        torch.equal(old, new) for old, new in zip(all_parameters(groups), all_parameters(new_groups), strict=True)
    ):
        raise Violation("resuming from its saved state changes the result", hint="keep all state in self.state")


@rule("state numbers", KIND, after=("state",))
def state_numbers(subject: ComponentUnderTest) -> None:
    """It reports the size of its state, from which loopkit plans memory."""
    for variant in subject.variants:
        groups, optimizer_rule = parameter_groups(), subject.build(variant.options)
        optimizer = optimizer_rule.build(groups)
        steps(optimizer, groups, 1)
        num_elements = sum(
            value.numel()
            for parameter, values in optimizer.state.items()
            for value in values.values()
            if isinstance(value, Tensor) and value.dim() > 0 and value.shape == parameter.shape
        )
        if (stated := optimizer_rule.state_numbers(groups)) != num_elements:
            seen = f"it reports {stated} numbers and holds {num_elements} {variant.name}".rstrip()
            raise Violation(
                "the size of its state differs from the reported one", seen, "override state_numbers(groups)"
            )


def _storable(value: Any, parameter: Tensor) -> bool:
    if isinstance(value, Tensor):
        return value.shape in (parameter.shape, torch.Size([]), torch.Size([1]))
    return isinstance(value, int | float)
