"""Regularizers: an unweighted fp32 scalar of the trajectory."""

from __future__ import annotations

import torch

from loopkit.components.regularizer import Regularized, Regularizer
from loopkit.loop import Trajectory
from loopkit.testing.checks.supervision import _check_gradient, _check_scalar, trajectory
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import pad_batch, random_batch
from loopkit.testing.rules import NotChecked, Violation, report_as_violation, rule

KIND = ("regularizer",)


@rule("value", KIND, after=("builds",))
def value(subject: ComponentUnderTest) -> None:
    """Its value is a finite fp32 scalar with a gradient for the model, with every option."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        t = trajectory(subject)
        with report_as_violation(f"it returns no value{where}"):
            result = Regularized.of(subject.build(variant.options)(t))
            value = result.value
        _check_scalar(value, f"its value{where}")
        with report_as_violation(f"its backward pass fails{where}"):
            value.backward()
        _check_gradient(t, where)
        _check_terms(result, where)


def _check_terms(result: Regularized, where: str) -> None:
    for name, term in result.terms.items():
        if "/" in name or not isinstance(term, torch.Tensor) or term.shape != ():
            raise Violation(f"its term {name!r} is not a scalar, or has '/' in its name{where}")
        if term.requires_grad:
            raise Violation(f"its term {name!r} has a gradient{where}", hint="call .detach() on values for the log")


def _value(part: Regularizer, t: Trajectory) -> torch.Tensor:
    return Regularized.of(part(t)).value


@rule("weight", KIND, after=("builds",))
def weight(subject: ComponentUnderTest) -> None:
    """It has a weight and a mix, and active() is a boolean."""
    part = subject.build()
    if not isinstance(getattr(part, "weight", None), int | float):
        raise Violation("it has no weight", repr(getattr(part, "weight", None)), "self.weight = weight")
    if part.mix not in ("additive", "convex"):
        raise Violation("its mix is neither 'additive' nor 'convex'", repr(part.mix))
    invalid = [step for step in (0, 1, 1000) if not isinstance(part.active(step), bool)]
    if invalid:
        raise Violation(f"active({invalid[0]}) is not a boolean", repr(part.active(invalid[0])))


@rule("unweighted", KIND, after=("value", "weight"))
def unweighted(subject: ComponentUnderTest) -> None:
    """Its value does not depend on its weight; the objective multiplies by it."""
    part = subject.build()
    first = _value(part, trajectory(subject)).item()
    part.weight = part.weight * 2 + 1
    if _value(part, trajectory(subject)).item() != first:
        raise Violation("its value depends on its weight", hint="return R; the objective computes weight * R")


@rule("seed", KIND, after=("value",))
def seed(subject: ComponentUnderTest) -> None:
    """Its value follows from the trajectory and not from a global random state."""
    values = []
    for number in (1, 2):
        t = trajectory(subject)
        torch.manual_seed(number)
        values.append(_value(subject.build(), t).item())
    if values[0] != values[1]:
        hint = "draw random numbers from t.noise.fold(...), which is keyed by seed, step, sample and position"
        raise Violation("the same trajectory gives different values", f"{values[0]} and {values[1]}", hint)


@rule("padding", KIND, after=("seed",))
def padding(subject: ComponentUnderTest) -> None:
    """Padding does not change its value."""
    if subject.lacks("padding"):
        raise NotChecked("its registration lists padding under lacks")
    data = random_batch(length=6)
    unpadded_value, padded_value = (
        _value(subject.build(), trajectory(subject, batch)).item() for batch in (data, pad_batch(data, right=3))
    )
    if abs(unpadded_value - padded_value) > 1e-4 * max(abs(unpadded_value), 1e-3):
        hint = "exclude tokens whose position is PAD: t.batch.positions < PAD"
        raise Violation("padding changes its value", f"{unpadded_value:.6g} without, {padded_value:.6g} with", hint)


@rule("autocast", KIND, after=("value",))
def autocast(subject: ComponentUnderTest) -> None:
    """It works under bf16 autocast, and its value remains fp32."""
    with report_as_violation("it fails under bf16 autocast"), torch.autocast("cpu", dtype=torch.bfloat16):
        value = _value(subject.build(), trajectory(subject))
    _check_scalar(value, "under bf16 autocast its value")
