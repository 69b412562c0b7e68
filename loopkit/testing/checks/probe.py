"""Probes: finite results that do not depend on the batches, without side effects."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from loopkit.components.probe import ProbeResult, passes
from loopkit.loop import Batch
from loopkit.model import LoopedModel
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import default_model, random_batch
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND, DEPTHS = ("probe",), (1, 2, 3)


def measure(subject: ComponentUnderTest, model: LoopedModel, batches: list[Batch], options: Any = None) -> ProbeResult:
    """Run a probe as evaluation does: first during the sweep, then by itself."""
    probe = subject.build(options)
    with torch.no_grad():
        for batch in batches:
            for t, depths in passes(model, batch, DEPTHS):
                probe.observe(t, depths)
        probe.run(model, batches, DEPTHS)
    result: ProbeResult = probe.result()
    return result


@rule("result", KIND, after=("builds",))
def result(subject: ComponentUnderTest) -> None:
    """Its result holds finite values of the requested depths, each with a unit, as plain JSON."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        with report_as_violation(f"it fails{where}"):
            measured = measure(subject, default_model(subject), [random_batch(rows=4)], variant.options)
        if not measured.by_depth and not measured.tables:
            raise Violation(f"its result is empty{where}")
        for name, values in measured.by_depth.items():
            if set(values) - set(DEPTHS):
                raise Violation(f"'{name}' has depths that were not requested{where}", str(sorted(values)))
            if invalid := [depth for depth, value in values.items() if not _finite(value)]:
                hint = "omit a depth without a value; do not return NaN or tensors"
                raise Violation(
                    f"'{name}' is not a finite number at depth {invalid[0]}{where}", repr(values[invalid[0]]), hint
                )
        try:
            json.dumps([dict(measured.by_depth), dict(measured.tables)], allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Violation(f"its result is not plain JSON{where}", str(error), ".item() and .tolist()") from error
        if missing := (set(measured.by_depth) | set(measured.tables)) - set(measured.units):
            raise Violation(f"units has no entry for '{min(missing)}'", hint='units={"name": "meaning, unit"}')


def _finite(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else [value]
    return all(isinstance(number, int | float) and math.isfinite(number) for number in values)


@rule("changes nothing", KIND, after=("result",))
def changes_nothing(subject: ComponentUnderTest) -> None:
    """It does not change the model, its mode, its gradients or the random state."""
    model = default_model(subject)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    measure(subject, model, [random_batch(rows=4)])
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    if changed:
        raise Violation(f"it changes the model's '{changed[0]}'", hint="work on a copy, or restore it")
    if model.training:
        raise Violation("it leaves the model in training mode")
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise Violation("it leaves gradients in the model", hint="torch.autograd.grad(...) instead of .backward()")
    if any(not parameter.requires_grad for parameter in model.parameters()):
        raise Violation("it leaves parameters frozen")
    if not torch.equal(state, torch.random.get_rng_state()):
        hint = "torch.Generator().manual_seed(...), or t.noise: a measurement must not change later training"
        raise Violation("it draws from torch's global random state", hint=hint)


@rule("no data", KIND, after=("result",))
def no_data(subject: ComponentUnderTest) -> None:
    """Without data its result is empty."""
    with report_as_violation("it fails without data", "omit values that were not measured"):
        measured = subject.build().result()
    if any(values for values in measured.by_depth.values()):
        raise Violation("it has values without data", str(measured.by_depth), "omit them; do not return zero")


@rule("batch split", KIND, after=("result",))
def batch_split(subject: ComponentUnderTest) -> None:
    """Its result does not depend on how sequences are batched."""
    data = random_batch(rows=4)
    together, separate = (measure(subject, default_model(subject), batches) for batches in ([data], data.split(1)))
    for name, values in together.by_depth.items():
        for depth, value in values.items():
            other = separate.by_depth.get(name, {}).get(depth)
            if not _is_close(value, other):
                hint = "keep sums and counts in fp64, and divide at the end; key random directions by sample"
                raise Violation(f"'{name}' at depth {depth} depends on the batches", f"{value} and {other}", hint)


def _is_close(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return (
            isinstance(right, dict) and left.keys() == right.keys() and all(_is_close(left[k], right[k]) for k in left)
        )
    return isinstance(right, int | float) and abs(left - right) <= 1e-3 * max(abs(left), abs(right), 1e-3)
