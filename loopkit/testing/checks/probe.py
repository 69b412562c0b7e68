"""Probes: they measure, and change nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from loopkit.components.probe import ProbeResult, passes
from loopkit.loop import Batch
from loopkit.model import LoopedModel
from loopkit.testing.case import Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import default_model, random_batch

KIND, DEPTHS = ("probe",), (1, 2, 3)


def measured(
    subject: ComponentUnderTest, around: LoopedModel, batches: list[Batch], options: Any = None
) -> ProbeResult:
    """Drive a probe as evaluation does: along the sweep, then on its own."""
    probe = subject.build(options)
    with torch.no_grad():
        for batch in batches:
            for t, depths in passes(around, batch, DEPTHS):
                probe.observe(t, depths)
        probe.run(around, batches, DEPTHS)
    found: ProbeResult = probe.result()
    return found


@rule("result", KIND, after=("builds",))
def result(subject: ComponentUnderTest) -> None:
    """Its result holds finite figures of the depths asked for, each with a unit, ready for JSON."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        with report_as_violation(f"it cannot measure{where}"):
            found = measured(subject, default_model(subject), [random_batch(rows=4)], variant.options)
        if not found.by_depth and not found.tables:
            raise Violation(f"it measures nothing{where}")
        for name, values in found.by_depth.items():
            if set(values) - set(DEPTHS):
                raise Violation(f"'{name}' has depths that were not asked for{where}", str(sorted(values)))
            if bad := [depth for depth, value in values.items() if not _finite(value)]:
                hint = "leave a depth out that has no value; never write NaN or a tensor"
                raise Violation(f"'{name}' is no finite number at depth {bad[0]}{where}", repr(values[bad[0]]), hint)
        try:
            json.dumps([dict(found.by_depth), dict(found.tables)], allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Violation(f"its result is not ready for JSON{where}", str(error), ".item() and .tolist()") from error
        if silent := (set(found.by_depth) | set(found.tables)) - set(found.units):
            raise Violation(f"units says nothing about '{min(silent)}'", hint='units={"name": "what it is, its unit"}')


def _finite(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else [value]
    return all(isinstance(number, int | float) and math.isfinite(number) for number in values)


@rule("changes nothing", KIND, after=("result",))
def changes_nothing(subject: ComponentUnderTest) -> None:
    """It leaves the model, its mode, its gradients and the random state as they were."""
    around = default_model(subject)
    before = {name: value.clone() for name, value in around.state_dict().items()}
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    measured(subject, around, [random_batch(rows=4)])
    changed = [name for name, value in around.state_dict().items() if not torch.equal(value, before[name])]
    if changed:
        raise Violation(f"it changes the model's '{changed[0]}'", hint="work on a copy, or put it back")
    if around.training:
        raise Violation("it leaves the model in training mode")
    if any(parameter.grad is not None for parameter in around.parameters()):
        raise Violation("it leaves gradients in the model", hint="torch.autograd.grad(...) instead of .backward()")
    if any(not parameter.requires_grad for parameter in around.parameters()):
        raise Violation("it leaves parameters frozen")
    if not torch.equal(state, torch.random.get_rng_state()):
        hint = "torch.Generator().manual_seed(...), or t.noise: a measurement must not move what is trained after it"
        raise Violation("it draws from torch's global random state", hint=hint)


@rule("no data", KIND, after=("result",))
def no_data(subject: ComponentUnderTest) -> None:
    """Before it has seen anything its result is empty, not an error."""
    with report_as_violation("it has no result where there was no data", "leave out what was not measured"):
        found = subject.build().result()
    if any(values for values in found.by_depth.values()):
        raise Violation("it has figures without data", str(found.by_depth), "absent, never zero")


@rule("batch split", KIND, after=("result",))
def batch_split(subject: ComponentUnderTest) -> None:
    """The same sequences in other batches give the same figures."""
    data = random_batch(rows=4)
    whole, parts = (measured(subject, default_model(subject), batches) for batches in ([data], data.split(1)))
    for name, values in whole.by_depth.items():
        for depth, value in values.items():
            other = parts.by_depth.get(name, {}).get(depth)
            if not _close(value, other):
                hint = "keep sums and counts in fp64, and divide at the end; key random directions by sample"
                raise Violation(f"'{name}' at depth {depth} depends on the batches", f"{value} and {other}", hint)


def _close(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(_close(left[k], right[k]) for k in left)
    return isinstance(right, int | float) and abs(left - right) <= 1e-3 * max(abs(left), abs(right), 1e-3)
