"""Inits: everything filled, from the seed, each module by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loopkit.model import initialise
from loopkit.testing.case import Violation, report_as_violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, build_model_around, compute_logits, random_batch

KIND = ("init",)


def weights(
    subject: ComponentUnderTest, options: dict[str, Any] | None = None, *, seed: int = 0, **parts: Any
) -> dict[str, Tensor]:
    """First weights of a model, whose global random state is not the one of the last call."""
    around = build_model_around(subject, options, seed=None, **parts)
    with report_as_violation("it cannot fill a model"):
        initialise(around, seed=seed, mean_loops=LOOPS)
    return dict(around.state_dict())


@rule("fills", KIND, after=("builds",))
def fills(subject: ComponentUnderTest) -> None:
    """It gives every parameter a finite number, whatever its options, and the model then runs."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        found = weights(subject, variant.options)
        unset = [name for name, value in found.items() if not value.isfinite().all()]
        if unset:
            raise Violation(f"it leaves '{unset[0]}' without a first value{where}")
    with torch.no_grad():
        if not compute_logits(build_model_around(subject), random_batch()).isfinite().all():
            raise Violation("a model with its weights gives logits that are not finite")


@rule("seed", KIND, after=("fills",))
def seed(subject: ComponentUnderTest) -> None:
    """Equal seeds give equal weights, other seeds others."""
    torch.manual_seed(1)
    first = weights(subject)
    torch.manual_seed(2)
    again, other = weights(subject), weights(subject, seed=1)
    differ = [name for name, value in first.items() if not torch.equal(value, again[name])]
    hint = "draw from the generator that draw() is given, and from nothing else"
    if differ:
        raise Violation(f"equal seeds give different weights of '{differ[0]}'", hint=hint)
    if all(torch.equal(value, other[name]) for name, value in first.items()):
        raise Violation("it ignores the seed: another one gives the same weights", hint=hint)


@rule("module by module", KIND, after=("seed",))
def module_by_module(subject: ComponentUnderTest) -> None:
    """Two models that differ in one part agree in the weights of all others."""
    first, other = weights(subject), weights(subject, injection="concat")
    shared = [name for name in first if name in other and not name.startswith("injection")]
    differ = [name for name in shared if not torch.equal(first[name], other[name])]
    if differ:
        hint = "key each module's stream by its name, as Init.__call__ does; override draw() instead of __call__"
        raise Violation(f"another injection changes the first weights of '{differ[0]}'", hint=hint)


@rule("random state", KIND, after=("fills",))
def random_state(subject: ComponentUnderTest) -> None:
    """It leaves torch's global random state as it was."""
    torch.manual_seed(0)
    around = build_model_around(subject, seed=None)
    before = torch.random.get_rng_state()
    initialise(around, seed=0, mean_loops=LOOPS)
    if not torch.equal(before, torch.random.get_rng_state()):
        raise Violation("it changes torch's global random state", hint="with torch.random.fork_rng(devices=[]): ...")
