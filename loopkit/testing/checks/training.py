"""Modules of a model in training: every parameter receives a gradient, and forward changes only tallies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from loopkit.loop import Loops, Tally, Trajectory, widen
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, build_model_around, compute_loss, default_model, random_batch, run_model
from loopkit.testing.recording import find_instances
from loopkit.testing.rules import MODULES, Violation, report_as_violation, rule

_MODULE_ATTRIBUTES = set(vars(nn.Module())) - {"training"}
"""Attributes that torch sets on every module."""


@rule("gradient", MODULES, after=("in place",))
def gradient(subject: ComponentUnderTest) -> None:
    """Each parameter receives a gradient from a loss at every loop or from its records, with every option."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        try:
            model = default_model(subject) if not variant.name else build_model_around(subject, variant.options)
        except ValueError:  # the component rejects a guessed value
            continue
        _perturb(model.train())
        with report_as_violation(f"its backward pass fails{where}"):
            t = run_model(model, random_batch())
            (compute_loss(t) + _loss_of_records(t)).backward()
        own = {id(p) for part in find_instances(subject, model) for p in part.parameters()}
        for name, parameter in model.named_parameters():
            if id(parameter) not in own:
                continue
            if parameter.grad is None or not parameter.grad.abs().sum() > 0:
                hint = "do not build unused parameters; look for .detach(), .data, or a skipped branch"
                raise Violation(f"no gradient reaches parameter '{name}'{where}", hint=hint)
            if not parameter.grad.isfinite().all():
                raise Violation(f"the gradient of '{name}' is not finite{where}")


def _loss_of_records(t: Trajectory) -> Tensor:
    """A loss of the records of each loop, as a regularizer may compute it."""
    values = [value for records in t.records for value in records.values() if isinstance(value, Tensor)]
    # shifted, because a square has no gradient at zero
    return sum((widen(v + 1).square().mean() for v in values if v.is_floating_point()), torch.zeros(()))


@torch.no_grad()
def _perturb(model: nn.Module) -> None:
    """Perturb the weights, because a branch initialised to zero (LoRA, adaLN) passes no gradient to earlier ones."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


@rule("truncated gradient", MODULES, after=("gradient",))
def truncated_gradient(subject: ComponentUnderTest) -> None:
    """It works if only the last loops have a gradient and sequences run different numbers of loops."""
    model, own = default_model(subject).train(), torch.tensor([3, 1, 2])
    with report_as_violation(
        "it fails if sequences run different numbers of loops", "step.rows holds the indices of the sequences"
    ):
        # a gate that stops sequences needs the gradient of all loops
        compute_loss(run_model(model, random_batch(), Loops(LOOPS, LOOPS if model.stops else 1, own))).backward()
    invalid = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if invalid:
        raise Violation("gradients are not finite with different numbers of loops", invalid[0])


@rule("only tallies change", MODULES, after=("in place", "keeps nothing"))
def only_tallies_change(subject: ComponentUnderTest) -> None:
    """A forward pass in training changes only tallies."""
    model = default_model(subject).train()
    instances = find_instances(subject, model)
    before = [_attributes(instance) for instance in instances]
    values = {name: value.clone() for name, value in _values_outside_tallies(model)}
    run_model(model, random_batch()).logits(LOOPS)
    for instance, old in zip(instances, before, strict=True):
        new = _attributes(instance)
        for name in sorted({*old, *new}, key=str):
            if name not in old or name not in new or not _is_equal(old[name], new[name]):
                hint = "keep state in registered buffers, set by update_buffers(): only buffers are saved and moved"
                raise Violation(f"it changes '{name}', which is not a registered buffer, in training", hint=hint)
    changed = [name for name, value in _values_outside_tallies(model) if not torch.equal(values[name], value)]
    if changed:
        hint = (
            "only the optimizer changes parameters; for running statistics add to a loopkit.loop.Tally and set the "
            "buffer in update_buffers()"
        )
        raise Violation(f"its forward pass changes '{changed[0]}'", hint=hint)


def _values_outside_tallies(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers, except the buffers of tallies."""
    added = {id(buffer) for tally in model.modules() if isinstance(tally, Tally) for buffer in tally.buffers()}
    return [
        (name, value) for name, value in [*model.named_parameters(), *model.named_buffers()] if id(value) not in added
    ]


def _attributes(part: nn.Module) -> dict[str, Any]:
    """Copies of the attributes of a module and its children, except parameters and buffers, for comparison."""
    attributes = {}
    for path, module in part.named_modules():
        for name, value in vars(module).items():
            if name not in _MODULE_ATTRIBUTES:
                attributes[".".join(filter(None, (path, name)))] = _copy_value(value)
    return attributes


def _copy_value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy_value(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    return value if isinstance(value, int | float | str | bool | bytes | None) else id(value)


def _is_equal(old: Any, new: Any) -> bool:
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return old.shape == new.shape and torch.equal(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_is_equal(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_is_equal, old, new))
    return type(old) is type(new) and bool(old == new)
