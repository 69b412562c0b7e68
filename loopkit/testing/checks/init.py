"""Inits: every parameter is set, from the seed and the name of its module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loopkit.model import initialise
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, build_model_around, compute_logits, random_batch
from loopkit.testing.rules import Violation, report_as_violation, rule

KIND = ("init",)


def weights(
    subject: ComponentUnderTest, options: dict[str, Any] | None = None, *, seed: int = 0, **parts: Any
) -> dict[str, Tensor]:
    """Initialise a new model and return its state."""
    model = build_model_around(subject, options, seed=None, **parts)
    with report_as_violation("it cannot initialise a model"):
        initialise(model, seed=seed, mean_loops=LOOPS)
    return dict(model.state_dict())


@rule("fills", KIND, after=("builds",))
def fills(subject: ComponentUnderTest) -> None:
    """It sets every parameter to finite values with every option, and the model then runs."""
    for variant in subject.variants:
        where = f" with {variant.name}" if variant.name else ""
        state = weights(subject, variant.options)
        unset = [name for name, value in state.items() if not value.isfinite().all()]
        if unset:
            raise Violation(f"it does not initialise '{unset[0]}'{where}")
    with torch.no_grad():
        if not compute_logits(build_model_around(subject), random_batch()).isfinite().all():
            raise Violation("the logits of a model with its weights are not finite")


@rule("seed", KIND, after=("fills",))
def seed(subject: ComponentUnderTest) -> None:
    """Equal seeds give equal weights, and different seeds different ones."""
    torch.manual_seed(1)
    first = weights(subject)
    torch.manual_seed(2)
    repeated, other = weights(subject), weights(subject, seed=1)
    differ = [name for name, value in first.items() if not torch.equal(value, repeated[name])]
    hint = "draw random numbers only from the generator that draw() receives"
    if differ:
        raise Violation(f"equal seeds give different weights of '{differ[0]}'", hint=hint)
    if all(torch.equal(value, other[name]) for name, value in first.items()):
        raise Violation("another seed gives the same weights", hint=hint)


@rule("module by module", KIND, after=("seed",))
def module_by_module(subject: ComponentUnderTest) -> None:
    """Two models that differ in one component have equal weights in all other components."""
    first, other = weights(subject), weights(subject, injection="concat")
    shared = [name for name in first if name in other and not name.startswith("injection")]
    differ = [name for name in shared if not torch.equal(first[name], other[name])]
    if differ:
        hint = "key the random numbers of each module by its name, as Init.__call__ does; override draw(), not __call__"
        raise Violation(f"another injection changes the initial weights of '{differ[0]}'", hint=hint)


@rule("random state", KIND, after=("fills",))
def random_state(subject: ComponentUnderTest) -> None:
    """It does not change torch's global random state."""
    torch.manual_seed(0)
    model = build_model_around(subject, seed=None)
    before = torch.random.get_rng_state()
    initialise(model, seed=0, mean_loops=LOOPS)
    if not torch.equal(before, torch.random.get_rng_state()):
        raise Violation("it changes torch's global random state", hint="with torch.random.fork_rng(devices=[]): ...")
