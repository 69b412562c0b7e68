"""Supervisions: one fp32 loss, of the loops that are declared."""

from __future__ import annotations

from typing import Any

import torch

from loopkit.loop import IGNORE, Batch, Loops, Trajectory
from loopkit.testing.case import Violation, rule, saying
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LENGTH, LOOPS, altered, model, run, tokens

KIND = ("supervision",)


def trajectory(subject: ComponentUnderTest, batch: Batch | None = None, loops: Loops | None = None) -> Trajectory:
    """A pass of a model in training that serves the subject."""
    return run(model(subject).train(), tokens() if batch is None else batch, loops)


def unscored(batch: Batch) -> Batch:
    """The same tokens without any label."""
    return Batch.of(batch.tokens, torch.full_like(batch.labels, IGNORE))


@rule("loss", KIND, after=("builds",))
def loss(subject: ComponentUnderTest) -> None:
    """Its loss is a finite fp32 scalar with a gradient, whatever its options."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        t, part = trajectory(subject), subject.build(variant.options)
        with saying(f"it gives no loss{where}", "return Supervised(loss, ce, terms)"):
            outcome = part(t)
            value = outcome.loss
        _scalar(value, f"its loss{where}")
        with saying(f"its backward pass breaks{where}"):
            value.backward()
        _reaches_the_model(t, where)
        if any(tensor.requires_grad for tensor in [*outcome.ce.values(), *outcome.terms.values()]):
            raise Violation(
                f"figures for the log carry a gradient{where}", hint=".detach() what goes into ce and terms"
            )


def _scalar(value: Any, what: str) -> None:
    if not isinstance(value, torch.Tensor) or value.shape != ():
        raise Violation(f"{what} is no scalar", str(list(getattr(value, "shape", [])) or type(value).__name__))
    if value.dtype != torch.float32:
        raise Violation(f"{what} is {value.dtype}, not fp32", hint="loopkit.loop.widen(x) before sums and means")
    if not value.isfinite():
        raise Violation(f"{what} is not finite", str(value.item()))


def _reaches_the_model(t: Trajectory, where: str) -> None:
    assert isinstance(t.model, torch.nn.Module)
    gradients = [p.grad for p in t.model.parameters() if p.grad is not None]
    if not any(gradient.abs().sum() > 0 for gradient in gradients):
        raise Violation(f"no gradient of it reaches the model{where}", hint="look for .detach(), .item(), no_grad")
    if not all(gradient.isfinite().all() for gradient in gradients):
        raise Violation(f"its gradient is not finite{where}")


@rule("loops", KIND, after=("loss",))
def loops(subject: ComponentUnderTest) -> None:
    """It reads exactly the loops that loops(total) names."""
    part = subject.build()
    for total in (1, 2, LOOPS):
        stated = list(part.loops(total))
        if not stated or min(stated) < 1 or max(stated) > total or len(set(stated)) != len(stated):
            raise Violation(f"loops({total}) names loops that a run of {total} has not", str(stated), "1 to total")
        t = trajectory(subject, loops=Loops.fixed(total))
        read = _noted_reads(t)
        outcome = part(t)
        if sorted(set(read)) != sorted(stated):
            hint = "plan counts FLOPs by loops(), and truncated backprop is checked against it"
            raise Violation(
                f"of {total} loops it reads others than loops({total}) names", f"{read}, not {stated}", hint
            )
        if sorted(outcome.ce) != sorted(stated):
            raise Violation(f"ce has other loops than loops({total}) names", f"{sorted(outcome.ce)}, not {stated}")


def _noted_reads(t: Trajectory) -> list[int]:
    """The loops whose readout is computed from now on, in their order."""
    read: list[int] = []
    model: Any = t.model
    readout = model.readout.forward

    def noting(h: torch.Tensor, k: int, at: int) -> torch.Tensor:
        read.append(k)
        found: torch.Tensor = readout(h, k, at)
        return found

    model.readout.forward = noting
    return read


@rule("no labels", KIND, after=("loss",))
def no_labels(subject: ComponentUnderTest) -> None:
    """Without any label its cross-entropy is 0 and its loss finite."""
    outcome = subject.build()(trajectory(subject, unscored(tokens())))
    bad = [k for k, value in outcome.ce.items() if value.abs() > 0]
    if bad or not outcome.loss.isfinite():
        hint = "divide by the number of scored tokens, clamped to at least 1"
        raise Violation("without any label its loss is not 0", f"{outcome.loss.item()}, ce {outcome.ce}", hint)


@rule("scored tokens", KIND, after=("no labels",))
def scored_tokens(subject: ComponentUnderTest) -> None:
    """What a token without a label would cost changes no cross-entropy."""
    data = tokens()
    some = data.labels.clone()
    some[:, -4:] = IGNORE
    later = Batch.of(altered(data, LENGTH - 4).tokens, some)
    plain, other = (subject.build()(trajectory(subject, batch)).ce for batch in (Batch.of(data.tokens, some), later))
    moved = [k for k in plain if abs(plain[k] - other[k]) > 1e-5]
    if moved:
        seen = f"other unscored tokens at the end move the cross-entropy of loop {moved[0]}"
        hint = "t.nll() holds 0 there: sum, and divide by the scored ones"
        raise Violation("tokens without a label count", seen, hint)


@rule("own depths", KIND, after=("loss",))
def own_depths(subject: ComponentUnderTest) -> None:
    """It works where sequences run loops of their own, and under bf16 autocast."""
    with saying("it breaks where sequences run different numbers of loops", "t.active(k) masks loop k"):
        t = trajectory(subject, loops=Loops(LOOPS, LOOPS, torch.tensor([3, 1, 2])))
        _scalar(subject.build()(t).loss, "with loops of its own for each sequence, its loss")
    with saying("it breaks under bf16 autocast"), torch.autocast("cpu", dtype=torch.bfloat16):
        _scalar(subject.build()(trajectory(subject)).loss, "under bf16 autocast its loss")
