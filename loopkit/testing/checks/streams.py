"""Starts, injections and carries: they work with a core whose state has several streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from loopkit import testing
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import (
    LENGTH,
    LOOPS,
    ROWS,
    WIDTH,
    build_model_around,
    compute_loss,
    random_batch,
    run_model,
)
from loopkit.testing.rules import NotChecked, Violation, report_as_violation, rule

STREAMS = 2


@rule("streams", ("start", "injection", "carry"), after=("first weights", "in place"))
def streams(subject: ComponentUnderTest) -> None:
    """It works with a core whose state is [B, T, S, D], or its registration states lacks={"streams"}."""
    if subject.lacks("streams"):
        raise NotChecked("its registration lists streams under lacks")
    core = {"type": "kit_streams", "streams": STREAMS}
    if "core" in subject.surroundings:
        raise NotChecked("it requires a core of its own")
    catalog = subject.catalog.with_files([Path(testing.__file__).parent / "stream_core.py"])
    hint = 'see the wiring `streams` and components.injection.per_stream; or state lacks={"streams"}'
    with report_as_violation("it fails with a state that has streams", hint):
        model = build_model_around(replace(subject, catalog=catalog, memo={}), core=core)
        t = run_model(model.train(), random_batch())
        compute_loss(t).backward()
    expected = [ROWS, LENGTH, STREAMS, WIDTH]
    for name, state in (("start", t.state(0)), ("state", t.state(LOOPS)), ("carried state", t.carried(LOOPS))):
        if list(state.shape) != expected:
            raise Violation(f"the {name} has a wrong shape", f"{list(state.shape)}, not {expected}", hint)
    if not torch.isfinite(t.state(LOOPS)).all():
        raise Violation("the state with streams is not finite", hint=hint)
