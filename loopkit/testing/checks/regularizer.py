"""Regularizers: an unweighted fp32 scalar of the trajectory."""

from __future__ import annotations

import torch

from loopkit.components.regularizer import Regularized, Regularizer
from loopkit.loop import Trajectory
from loopkit.testing.case import NotChecked, Violation, report_as_violation, rule
from loopkit.testing.checks.supervision import _reaches_the_model, _scalar, trajectory
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import pad_batch, random_batch

KIND = ("regularizer",)


@rule("value", KIND, after=("builds",))
def value(subject: ComponentUnderTest) -> None:
    """Its value is a finite fp32 scalar whose gradient reaches the model, whatever its options."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        t = trajectory(subject)
        with report_as_violation(f"it gives no value{where}"):
            result = Regularized.of(subject.build(variant.options)(t))
            found = result.value
        _scalar(found, f"its value{where}")
        with report_as_violation(f"its backward pass breaks{where}"):
            found.backward()
        _reaches_the_model(t, where)
        _terms(result, where)


def _terms(result: Regularized, where: str) -> None:
    for name, term in result.terms.items():
        if "/" in name or not isinstance(term, torch.Tensor) or term.shape != ():
            raise Violation(f"its term {name!r} is no named scalar{where}", hint="a tensor without dimensions; no '/'")
        if term.requires_grad:
            raise Violation(f"its term {name!r} carries a gradient{where}", hint=".detach() what is for the log")


def _value(part: Regularizer, t: Trajectory) -> torch.Tensor:
    return Regularized.of(part(t)).value


@rule("weight", KIND, after=("builds",))
def weight(subject: ComponentUnderTest) -> None:
    """It has a weight, a way to mix, and an answer at which steps it counts."""
    part = subject.build()
    if not isinstance(getattr(part, "weight", None), int | float):
        raise Violation("it has no weight", repr(getattr(part, "weight", None)), "self.weight = weight")
    if part.mix not in ("additive", "convex"):
        raise Violation("its mix is neither 'additive' nor 'convex'", repr(part.mix))
    odd = [step for step in (0, 1, 1000) if not isinstance(part.active(step), bool)]
    if odd:
        raise Violation(f"active({odd[0]}) is neither True nor False", repr(part.active(odd[0])))


@rule("unweighted", KIND, after=("value", "weight"))
def unweighted(subject: ComponentUnderTest) -> None:
    """Its value does not contain its weight: the objective multiplies."""
    part = subject.build()
    first = _value(part, trajectory(subject)).item()
    part.weight = part.weight * 2 + 1
    if _value(part, trajectory(subject)).item() != first:
        raise Violation("its value changes with its weight", hint="return R; the objective forms weight * R")


@rule("seed", KIND, after=("value",))
def seed(subject: ComponentUnderTest) -> None:
    """The same trajectory gives the same value, and no global random number is drawn."""
    found = []
    for number in (1, 2):
        t = trajectory(subject)
        torch.manual_seed(number)
        found.append(_value(subject.build(), t).item())
    if found[0] != found[1]:
        hint = "draw from t.noise.fold(...), which is keyed by seed, step, sample and position"
        raise Violation("the same trajectory gives two values", f"{found[0]} and {found[1]}", hint)


@rule("padding", KIND, after=("seed",))
def padding(subject: ComponentUnderTest) -> None:
    """Padding does not count."""
    if subject.lacks("padding"):
        raise NotChecked("it says that it lacks padding")
    data = random_batch(length=6)
    plain, wide = (
        _value(subject.build(), trajectory(subject, batch)).item() for batch in (data, pad_batch(data, right=3))
    )
    if abs(plain - wide) > 1e-4 * max(abs(plain), 1e-3):
        hint = "leave out tokens whose position is PAD: t.batch.positions < PAD"
        raise Violation("padding changes its value", f"{plain:.6g} without, {wide:.6g} with", hint)


@rule("autocast", KIND, after=("value",))
def autocast(subject: ComponentUnderTest) -> None:
    """It works under bf16 autocast, and its value is fp32 there too."""
    with report_as_violation("it breaks under bf16 autocast"), torch.autocast("cpu", dtype=torch.bfloat16):
        found = _value(subject.build(), trajectory(subject))
    _scalar(found, "under bf16 autocast its value")
