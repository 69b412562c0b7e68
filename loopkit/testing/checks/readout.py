"""Readouts: their dependence on the scale of the state is as registered."""

from __future__ import annotations

import torch

from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LENGTH, LOOPS, ROWS, WIDTH, default_model
from loopkit.testing.recording import find_instances
from loopkit.testing.rules import Violation, rule

SMALL, LARGE = 1e2, 1e4
"""Scales at which the eps of a norm is negligible."""


@rule("scale", ("readout",), after=("in place", "keeps nothing"))
@torch.no_grad()
def scale(subject: ComponentUnderTest) -> None:
    """It is invariant to the scale of the state exactly if its registration states scale_invariant."""
    (readout,) = find_instances(subject, default_model(subject, torch.float64))
    h = torch.randn(ROWS, LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    changes = {}
    for k in range(1, LOOPS + 1):
        small, large = readout(SMALL * h, k, LOOPS), readout(LARGE * h, k, LOOPS)
        changes[k] = float((large - small).abs().max() / small.abs().max())
    stated = bool(subject.traits.get("scale_invariant", False))
    largest = max(changes.values())
    if stated and largest > 1e-4:
        at = max(changes, key=lambda k: changes[k])
        seen = f"a state 100 times as large changes the result at loop {at} by {largest:.1%}"
        raise Violation(
            "it states scale_invariant, but the scale of the state changes its result", seen, "omit the trait"
        )
    if not stated and largest < 1e-6:
        seen = f"a state 100 times as large changes the result by {largest:.0e}"
        hint = "@register(..., scale_invariant=True): `audit` then reports that no loss controls the norm of the state"
        raise Violation("it is invariant to the scale of the state without stating scale_invariant", seen, hint)
