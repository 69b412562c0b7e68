"""Supervisions: one fp32 loss of the declared loops."""

from __future__ import annotations

from typing import Any

import torch

from loopkit.loop import IGNORE, Batch, Loops, Trajectory
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LENGTH, LOOPS, change_tokens, default_model, random_batch, run_model
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND = ("supervision",)


def trajectory(subject: ComponentUnderTest, batch: Batch | None = None, loops: Loops | None = None) -> Trajectory:
    """Run a model for the subject in training mode."""
    return run_model(default_model(subject).train(), random_batch() if batch is None else batch, loops)


def unscored(batch: Batch) -> Batch:
    """The same tokens without labels."""
    return Batch.of(batch.tokens, torch.full_like(batch.labels, IGNORE))


@rule("loss", KIND, after=("builds",))
def loss(subject: ComponentUnderTest) -> None:
    """Its loss is a finite fp32 scalar with a gradient, with every option."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        t, part = trajectory(subject), subject.build(variant.options)
        with report_as_violation(f"it returns no loss{where}", "return Supervised(loss, ce, terms)"):
            outcome = part(t)
            value = outcome.loss
        _check_scalar(value, f"its loss{where}")
        with report_as_violation(f"its backward pass fails{where}"):
            value.backward()
        _check_gradient(t, where)
        if any(tensor.requires_grad for tensor in [*outcome.ce.values(), *outcome.terms.values()]):
            raise Violation(
                f"values for the log have a gradient{where}", hint="call .detach() on the values of ce and terms"
            )


def _check_scalar(value: Any, what: str) -> None:
    if not isinstance(value, torch.Tensor) or value.shape != ():
        raise Violation(f"{what} is not a scalar", str(list(getattr(value, "shape", [])) or type(value).__name__))
    if value.dtype != torch.float32:
        raise Violation(f"{what} is {value.dtype}, not fp32", hint="call loopkit.loop.widen(x) before sums and means")
    if not value.isfinite():
        raise Violation(f"{what} is not finite", str(value.item()))


def _check_gradient(t: Trajectory, where: str) -> None:
    assert isinstance(t.model, torch.nn.Module)
    gradients = [p.grad for p in t.model.parameters() if p.grad is not None]
    if not any(gradient.abs().sum() > 0 for gradient in gradients):
        raise Violation(f"its gradient does not reach the model{where}", hint="look for .detach(), .item(), no_grad")
    if not all(gradient.isfinite().all() for gradient in gradients):
        raise Violation(f"its gradient is not finite{where}")


@rule("loops", KIND, after=("loss",))
def loops(subject: ComponentUnderTest) -> None:
    """It reads exactly the loops that loops(total) lists."""
    part = subject.build()
    for total in (1, 2, LOOPS):
        stated = list(part.loops(total))
        if not stated or min(stated) < 1 or max(stated) > total or len(set(stated)) != len(stated):
            raise Violation(
                f"loops({total}) lists loops that a run of {total} does not have",
                str(stated),
                "list loops from 1 to total",
            )
        t = trajectory(subject, loops=Loops.fixed(total))
        read = _record_readouts(t)
        outcome = part(t)
        if sorted(set(read)) != sorted(stated):
            hint = "loopkit counts FLOPs by loops(), and checks truncated backpropagation against it"
            raise Violation(
                f"of {total} loops it reads other loops than loops({total}) lists", f"{read}, not {stated}", hint
            )
        if sorted(outcome.ce) != sorted(stated):
            raise Violation(f"ce has other loops than loops({total}) lists", f"{sorted(outcome.ce)}, not {stated}")


def _record_readouts(t: Trajectory) -> list[int]:
    """Record the loops whose readout is computed after this call, in order."""
    read: list[int] = []
    model: Any = t.model
    readout = model.readout.forward

    def recording_readout(h: torch.Tensor, k: int, at: int) -> torch.Tensor:
        read.append(k)
        result: torch.Tensor = readout(h, k, at)
        return result

    model.readout.forward = recording_readout
    return read


@rule("no labels", KIND, after=("loss",))
def no_labels(subject: ComponentUnderTest) -> None:
    """Without labels its cross-entropy is 0 and its loss is finite."""
    outcome = subject.build()(trajectory(subject, unscored(random_batch())))
    nonzero = [k for k, value in outcome.ce.items() if value.abs() > 0]
    if nonzero or not outcome.loss.isfinite():
        hint = "divide by the number of scored tokens, clamped to at least 1"
        raise Violation("without labels its loss is not 0", f"{outcome.loss.item()}, ce {outcome.ce}", hint)


@rule("scored tokens", KIND, after=("no labels",))
def scored_tokens(subject: ComponentUnderTest) -> None:
    """Tokens without a label do not change the cross-entropy."""
    data = random_batch()
    labels = data.labels.clone()
    labels[:, -4:] = IGNORE
    changed = Batch.of(change_tokens(data, LENGTH - 4).tokens, labels)
    expected, actual = (
        subject.build()(trajectory(subject, batch)).ce for batch in (Batch.of(data.tokens, labels), changed)
    )
    different = [k for k in expected if abs(expected[k] - actual[k]) > 1e-5]
    if different:
        seen = f"other unscored tokens at the end change the cross-entropy of loop {different[0]}"
        hint = "t.nll() is 0 for them: divide its sum by the number of scored tokens"
        raise Violation("tokens without a label change the cross-entropy", seen, hint)


@rule("own depths", KIND, after=("loss",))
def own_depths(subject: ComponentUnderTest) -> None:
    """It works if sequences run different numbers of loops, and under bf16 autocast."""
    with report_as_violation(
        "it fails if sequences run different numbers of loops", "t.active(k) marks the sequences of loop k"
    ):
        t = trajectory(subject, loops=Loops(LOOPS, LOOPS, torch.tensor([3, 1, 2])))
        _check_scalar(subject.build()(t).loss, "with different numbers of loops, its loss")
    with report_as_violation("it fails under bf16 autocast"), torch.autocast("cpu", dtype=torch.bfloat16):
        _check_scalar(subject.build()(trajectory(subject)).loss, "under bf16 autocast its loss")
