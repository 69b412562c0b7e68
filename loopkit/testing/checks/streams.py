"""Parts around a core: a state with several streams passes through them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from loopkit import testing
from loopkit.testing.case import NotChecked, Violation, report_as_violation, rule
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

STREAMS = 2


@rule("streams", ("start", "injection", "carry"), after=("first weights", "in place"))
def streams(subject: ComponentUnderTest) -> None:
    """It works beside a core whose state is [B, T, S, D], or its registration says lacks={"streams"}."""
    if subject.lacks("streams"):
        raise NotChecked("it says that it lacks streams")
    core = {"type": "kit_streams", "streams": STREAMS}
    if "core" in subject.around:
        raise NotChecked("it asks for a core of its own")
    known = subject.catalog.with_files([Path(testing.__file__).parent / "stream_core.py"])
    hint = 'see the wiring `streams` and components.injection.per_stream; or state lacks={"streams"}'
    with report_as_violation("it does not work where the state has streams", hint):
        around = build_model_around(replace(subject, catalog=known, memo={}), core=core)
        t = run_model(around.train(), random_batch())
        compute_loss(t).backward()
    expected = [ROWS, LENGTH, STREAMS, WIDTH]
    for name, state in (("start", t.state(0)), ("state", t.state(LOOPS)), ("carried state", t.carried(LOOPS))):
        if list(state.shape) != expected:
            raise Violation(f"the {name} has lost its streams", f"{list(state.shape)}, not {expected}", hint)
    if not torch.isfinite(t.state(LOOPS)).all():
        raise Violation("the state with streams is not finite", hint=hint)
