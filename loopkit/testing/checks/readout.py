"""Readouts: whether the scale of the state reaches the head, as declared. Gates: provided, as declared."""

from __future__ import annotations

import torch

from loopkit.testing.case import NotChecked, Violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LENGTH, LOOPS, ROWS, WIDTH, default_model, random_batch, run_model
from loopkit.testing.recording import find_instances

SMALL, LARGE = 1e2, 1e4
"""Scales at which the constant that a norm adds to a mean square no longer counts."""


@rule("scale", ("readout",), after=("in place", "keeps nothing"))
@torch.no_grad()
def scale(subject: ComponentUnderTest) -> None:
    """It ignores the scale of the state exactly where its registration says scale_invariant."""
    (readout,) = find_instances(subject, default_model(subject, torch.float64))
    h = torch.randn(ROWS, LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    answers = {}
    for k in range(1, LOOPS + 1):
        small, large = readout(SMALL * h, k, LOOPS), readout(LARGE * h, k, LOOPS)
        answers[k] = float((large - small).abs().max() / small.abs().max())
    stated = bool(subject.traits.get("scale_invariant", False))
    largest = max(answers.values())
    if stated and largest > 1e-4:
        at = max(answers, key=lambda k: answers[k])
        seen = f"a state 100 times as large changes what the head sees at loop {at} by {largest:.1%}"
        raise Violation("it says scale_invariant, and the scale of the state passes", seen, "leave the trait out")
    if not stated and largest < 1e-6:
        seen = f"a state 100 times as large changes nothing ({largest:.0e})"
        hint = (
            "@register(..., scale_invariant=True): no loss through it can hold the state's scale, which `audit` reports"
        )
        raise Violation("it ignores the scale of the state and does not say so", seen, hint)


@rule("provides a gate", ("gate",), after=("in place",))
def provides_a_gate(subject: ComponentUnderTest) -> None:
    """It says provides={"gate"} exactly where it gives exit logits."""
    stated, t = "gate" in subject.traits.get("provides", ()), run_model(default_model(subject), random_batch())
    try:
        t.gate(1)
        gives = True
    except ValueError:
        gives = False
    if gives and not stated:
        raise Violation("it gives exit logits and does not say so", hint='@register(..., provides={"gate"})')
    if stated and not gives:
        raise Violation('it says provides={"gate"} and refuses to give one')
    if not stated:
        raise NotChecked("it provides no gate")
