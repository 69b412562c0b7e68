"""Modules of a model in training: gradients arrive, and only buffers change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from loopkit.loop import Loops
from loopkit.testing.calls import parts_of
from loopkit.testing.case import MODULES, Violation, rule, saying
from loopkit.testing.subject import Subject
from loopkit.testing.surround import LOOPS, build, loss, model, run, tokens

_MACHINERY = set(vars(nn.Module())) - {"training"}
"""Attributes that torch itself keeps on every module."""


@rule("gradient", MODULES, after=("in place",))
def gradient(subject: Subject) -> None:
    """A loss at every loop sends gradient to each of its parameters, whatever its options."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        try:
            around = model(subject) if not variant.name else build(subject, variant.options)
        except ValueError:  # a guessed value that it refuses
            continue
        _move(around.train())
        with saying(f"its backward pass breaks{where}"):
            loss(run(around, tokens())).backward()
        own = {id(p) for part in parts_of(subject, around) for p in part.parameters()}
        for name, parameter in around.named_parameters():
            if id(parameter) not in own:
                continue
            if parameter.grad is None or not parameter.grad.abs().sum() > 0:
                hint = "do not construct what an option leaves unused; look for .detach(), .data, or a branch not taken"
                raise Violation(f"no gradient reaches parameter '{name}'{where}", hint=hint)
            if not parameter.grad.isfinite().all():
                raise Violation(f"the gradient of '{name}' is not finite{where}")


@torch.no_grad()
def _move(around: nn.Module) -> None:
    """Take weights a step away from their first values: a branch that begins at zero (LoRA, adaLN) sends nothing to
    what stands before it, and is none the worse for it."""
    generator = torch.Generator().manual_seed(0)
    for parameter in around.parameters():
        parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


@rule("truncated gradient", MODULES, after=("gradient",))
def truncated_gradient(subject: Subject) -> None:
    """It works where only the last of the loops carry gradient, and sequences run loops of their own."""
    around, own = model(subject).train(), torch.tensor([3, 1, 2])
    with saying("it breaks where sequences run different numbers of loops", "step.rows says which sequences these are"):
        # a gate that ends sequences asks for gradient in all loops
        loss(run(around, tokens(), Loops(LOOPS, LOOPS if around.stops else 1, own))).backward()
    bad = [name for name, p in around.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if bad:
        raise Violation("gradients are not finite with loops of its own for each sequence", bad[0])


@rule("only buffers change", MODULES, after=("in place", "keeps nothing"))
def only_buffers_change(subject: Subject) -> None:
    """A forward pass in training changes registered buffers and nothing else."""
    around = model(subject).train()
    parts = parts_of(subject, around)
    before = [_attributes(part) for part in parts]
    weights = {name: value.clone() for name, value in around.named_parameters()}
    run(around, tokens()).logits(LOOPS)
    for part, old in zip(parts, before, strict=True):
        new = _attributes(part)
        for name in sorted({*old, *new}, key=str):
            if name not in old or name not in new or not _equal(old[name], new[name]):
                hint = f"self.register_buffer({name!r}, ...): only buffers are saved, moved, and told to other ranks"
                raise Violation(f"it changes '{name}', which is no registered buffer, in training", hint=hint)
    moved = [name for name, value in around.named_parameters() if not torch.equal(weights[name], value)]
    if moved:
        raise Violation(f"its forward pass changes parameter '{moved[0]}'", hint="that is the optimizer's to do")


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
