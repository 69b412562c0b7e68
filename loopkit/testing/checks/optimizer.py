"""Optimizers: every parameter updated by its group's rate, with a state that can be saved."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from loopkit.components.optimizer import ParameterGroup
from loopkit.testing.case import Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest

KIND = ("optimizer",)
SHAPES: dict[str, tuple[int, ...]] = {"matrix": (6, 4), "vector": (5,), "embedding": (7, 4), "head": (7, 4)}


def groups() -> list[ParameterGroup]:
    """One group of each role, and one that never decays."""
    generator = torch.Generator().manual_seed(0)

    def parameters(shape: tuple[int, ...]) -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(torch.randn(*shape, generator=generator)) for _ in range(2)]

    found = [ParameterGroup(role, parameters(shape), role) for role, shape in SHAPES.items()]  # type: ignore[arg-type]
    return [*found, ParameterGroup("vector_no_decay", parameters((5,)), "vector", decay=False)]


def all_of(made: list[ParameterGroup]) -> list[torch.nn.Parameter]:
    return [parameter for group in made for parameter in group.params]


def steps(optimizer: torch.optim.Optimizer, made: list[ParameterGroup], count: int, rate: float = 0.01) -> None:
    """Some steps downhill on the sum of squares, the rate set as the trainer sets it."""
    for _ in range(count):
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        optimizer.zero_grad()
        sum((parameter.square().sum() for parameter in all_of(made)), torch.zeros(())).backward()
        optimizer.step()


@rule("covers", KIND, after=("builds",))
def covers(subject: ComponentUnderTest) -> None:
    """It takes every parameter once, and is a torch optimizer."""
    made = groups()
    with report_as_violation("it does not build an optimizer", "return a torch.optim.Optimizer over all groups"):
        optimizer = subject.build().build(made)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Violation("what it builds is no torch.optim.Optimizer", type(optimizer).__name__)
    taken = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    wanted = [id(parameter) for parameter in all_of(made)]
    if sorted(taken) != sorted(wanted):
        seen = f"{len(taken)} parameters, {len(set(taken) & set(wanted))} of the {len(wanted)} given"
        raise Violation("it does not take each parameter exactly once", seen)


@rule("descends", KIND, after=("covers",))
def descends(subject: ComponentUnderTest) -> None:
    """Its steps go downhill for each role, stay finite, and stand still at a rate of 0."""
    for variant in subject.variants:
        made = groups()
        optimizer = subject.build(variant.options).build(made)
        before = [parameter.detach().clone() for parameter in all_of(made)]
        steps(optimizer, made, 1, rate=0.0)
        if not all(torch.equal(old, new) for old, new in zip(before, all_of(made), strict=True)):
            raise Violation("it moves parameters at a learning rate of 0", variant.name, "the trainer sets group['lr']")
        steps(optimizer, made, 10)
        for group in made:
            for parameter, old in zip(group.params, before[: len(group.params)], strict=True):
                if not parameter.isfinite().all():
                    raise Violation(f"it makes a {group.role} that is not finite", variant.name)
                if not parameter.square().sum() < old.square().sum():
                    raise Violation(f"its steps do not go downhill for a {group.role}", variant.name)
            del before[: len(group.params)]


@rule("decay", KIND, after=("descends",))
def decay(subject: ComponentUnderTest) -> None:
    """A parameter that must not decay stays where it is without a gradient."""
    made = groups()
    optimizer = subject.build().build(made)
    spared = made[-1].params
    before = [parameter.detach().clone() for parameter in spared]
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in all_of(made):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    if not all(torch.equal(old, new) for old, new in zip(before, spared, strict=True)):
        raise Violation("it decays a parameter that must not", hint="weight_decay 0 where group.decay is False")


@rule("state", KIND, after=("descends",))
def state(subject: ComponentUnderTest) -> None:
    """Its state is tensors of each parameter's shape or scalars, and going on from it gives the same numbers."""
    made = groups()
    optimizer = subject.build().build(made)
    steps(optimizer, made, 2)
    for parameter, kept in optimizer.state.items():
        for name, value in kept.items():
            if not _storable(value, parameter):
                seen = f"{name}: {list(value.shape) if isinstance(value, Tensor) else type(value).__name__}"
                raise Violation("its state holds what no checkpoint can carry to another ZeRO stage", seen)
    again = groups()
    with torch.no_grad():
        for new, old in zip(all_of(again), all_of(made), strict=True):
            new.copy_(old)
    resumed = subject.build().build(again)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # as a file would, it shares nothing
    steps(optimizer, made, 2)
    steps(resumed, again, 2)
    if not all(torch.equal(old, new) for old, new in zip(all_of(made), all_of(again), strict=True)):
        raise Violation("going on from its saved state gives other numbers", hint="keep nothing outside of self.state")


@rule("state numbers", KIND, after=("state",))
def state_numbers(subject: ComponentUnderTest) -> None:
    """It says how many numbers its state holds, for plans of memory."""
    for variant in subject.variants:
        made, rule_ = groups(), subject.build(variant.options)
        optimizer = rule_.build(made)
        steps(optimizer, made, 1)
        held = sum(
            value.numel()
            for parameter, kept in optimizer.state.items()
            for value in kept.values()
            if isinstance(value, Tensor) and value.dim() > 0 and value.shape == parameter.shape
        )
        if (said := rule_.state_numbers(made)) != held:
            seen = f"it says {said} and holds {held} {variant.name}".rstrip()
            raise Violation("its state is not as large as it says", seen, "override state_numbers(groups)")


def _storable(value: Any, parameter: Tensor) -> bool:
    if isinstance(value, Tensor):
        return value.shape in (parameter.shape, torch.Size([]), torch.Size([1]))
    return isinstance(value, int | float)
