"""Modules of a model in training: gradients arrive, and only tallies change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from loopkit.loop import Loops, Tally, Trajectory, widen
from loopkit.testing.case import MODULES, Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, build_model_around, compute_loss, default_model, random_batch, run_model
from loopkit.testing.recording import find_instances

_MACHINERY = set(vars(nn.Module())) - {"training"}
"""Attributes that torch itself keeps on every module."""


@rule("gradient", MODULES, after=("in place",))
def gradient(subject: ComponentUnderTest) -> None:
    """A loss at every loop, or one of its records, sends gradient to each of its parameters, whatever its options."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        try:
            around = default_model(subject) if not variant.name else build_model_around(subject, variant.options)
        except ValueError:  # a guessed value that it refuses
            continue
        _move(around.train())
        with report_as_violation(f"its backward pass breaks{where}"):
            t = run_model(around, random_batch())
            (compute_loss(t) + _recorded(t)).backward()
        own = {id(p) for part in find_instances(subject, around) for p in part.parameters()}
        for name, parameter in around.named_parameters():
            if id(parameter) not in own:
                continue
            if parameter.grad is None or not parameter.grad.abs().sum() > 0:
                hint = "do not construct what an option leaves unused; look for .detach(), .data, or a branch not taken"
                raise Violation(f"no gradient reaches parameter '{name}'{where}", hint=hint)
            if not parameter.grad.isfinite().all():
                raise Violation(f"the gradient of '{name}' is not finite{where}")


def _recorded(t: Trajectory) -> Tensor:
    """What a regularizer could make of the records of each loop."""
    found = [value for records in t.records for value in records.values() if isinstance(value, Tensor)]
    # off zero, where a square has no slope
    return sum((widen(v + 1).square().mean() for v in found if v.is_floating_point()), torch.zeros(()))


@torch.no_grad()
def _move(around: nn.Module) -> None:
    """Take weights a step away from their first values: a branch that begins at zero (LoRA, adaLN) sends nothing to
    what stands before it, and is none the worse for it."""
    generator = torch.Generator().manual_seed(0)
    for parameter in around.parameters():
        parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


@rule("truncated gradient", MODULES, after=("gradient",))
def truncated_gradient(subject: ComponentUnderTest) -> None:
    """It works where only the last of the loops carry gradient, and sequences run loops of their own."""
    around, own = default_model(subject).train(), torch.tensor([3, 1, 2])
    with report_as_violation(
        "it breaks where sequences run different numbers of loops", "step.rows says which sequences these are"
    ):
        # a gate that ends sequences asks for gradient in all loops
        compute_loss(run_model(around, random_batch(), Loops(LOOPS, LOOPS if around.stops else 1, own))).backward()
    bad = [name for name, p in around.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if bad:
        raise Violation("gradients are not finite with loops of its own for each sequence", bad[0])


@rule("only tallies change", MODULES, after=("in place", "keeps nothing"))
def only_tallies_change(subject: ComponentUnderTest) -> None:
    """A forward pass in training adds to tallies and changes nothing else."""
    around = default_model(subject).train()
    parts = find_instances(subject, around)
    before = [_attributes(part) for part in parts]
    values = {name: value.clone() for name, value in _own_values(around)}
    run_model(around, random_batch()).logits(LOOPS)
    for part, old in zip(parts, before, strict=True):
        new = _attributes(part)
        for name in sorted({*old, *new}, key=str):
            if name not in old or name not in new or not _equal(old[name], new[name]):
                hint = (
                    "state is kept in registered buffers, which update_buffers() sets: only these are saved and moved"
                )
                raise Violation(f"it changes '{name}', which is not a registered buffer, in training", hint=hint)
    moved = [name for name, value in _own_values(around) if not torch.equal(values[name], value)]
    if moved:
        hint = (
            "the optimizer changes parameters; for a buffer that follows the data, add to a loopkit.loop.Tally and set "
            "the buffer in update_buffers()"
        )
        raise Violation(f"its forward pass changes '{moved[0]}'", hint=hint)


def _own_values(around: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers, those of tallies left out."""
    added = {id(buffer) for tally in around.modules() if isinstance(tally, Tally) for buffer in tally.buffers()}
    return [
        (name, value) for name, value in [*around.named_parameters(), *around.named_buffers()] if id(value) not in added
    ]


def _attributes(part: nn.Module) -> dict[str, Any]:
    """What a module and its own children keep, buffers and parameters left out, as values that can be compared."""
    found = {}
    for place, module in part.named_modules():
        for name, value in vars(module).items():
            if name not in _MACHINERY:
                found[".".join(filter(None, (place, name)))] = _frozen(value)
    return found


def _frozen(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_frozen(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    return value if isinstance(value, int | float | str | bool | bytes | None) else id(value)


def _equal(old: Any, new: Any) -> bool:
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return old.shape == new.shape and torch.equal(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_equal(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_equal, old, new))
    return type(old) is type(new) and bool(old == new)
