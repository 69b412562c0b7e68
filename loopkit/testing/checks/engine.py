"""What takes part in training: a step of the engine, any split of the batch, and two ranks."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from loopkit.testing.calls import parts_of
from loopkit.testing.case import MODULES, NotChecked, Violation, rule, saying
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.engine_run import TRAINED, Plan, alone, difference, engine_variants, train
from loopkit.testing.harness import build
from loopkit.testing.options import Variant
from loopkit.testing.ranks import RankFailed, train_on_two_ranks

BEFORE = (
    *("builds", "gradient", "only tallies change", "seed", "causal", "batch", "padding"),
    *("loss", "value", "micro-batch value", "descends"),
)
"""Rules of the kinds that are trained whose faults would show here too."""

TOLERANCE = 1e-4
"""Of parameters and buffers after a few steps, whose sums were taken in another order."""

STEPS_WITH_BUFFERS, STEPS = 5, 2


@rule("engine step", TRAINED, after=BEFORE)
def engine_step(subject: ComponentUnderTest) -> None:
    """The training engine takes steps with it; its numbers stay finite, and what is frozen stays as it is."""
    for variant in engine_variants(subject):
        with saying(f"the training engine cannot take a step with it{_with(variant)}"):
            after = _alone(subject, Plan(variant.options))
        bad = [name for name, value in after.items() if not value.isfinite().all()]
        if bad:
            raise Violation(f"'{bad[0]}' is not finite after two steps of training{_with(variant)}")
        if subject.schema.kind in MODULES:
            _frozen(subject, variant)


def _frozen(subject: ComponentUnderTest, variant: Variant) -> None:
    before = build(subject, variant.options)
    own = {id(p) for part in parts_of(subject, before) for p in part.parameters()}
    names = [name for name, parameter in before.named_parameters() if id(parameter) in own]
    if not names:
        return
    with saying(f"the training engine cannot take a step with it{_with(variant)} where it is frozen"):
        after = _alone(subject, Plan(variant.options, frozen=True))
    moved = [name for name in names if not torch.equal(after[f"model.{name}"], before.get_parameter(name))]
    if moved:
        hint = "leave requires_grad of parameters alone: train.trainable sets it"
        raise Violation(f"its parameter '{moved[0]}' is trained where train.trainable leaves it out", hint=hint)


@rule("micro-batch", TRAINED, after=("engine step", "stops"))
def micro_batch(subject: ComponentUnderTest) -> None:
    """Weights and buffers after training depend neither on the micro-batch nor on padding."""
    for variant in engine_variants(subject):
        if not _any_split(subject, variant):
            raise NotChecked("its numbers follow from how the batch is split, or amplify rounding")
        whole = _alone(subject, Plan(variant.options))
        padding = 0 if subject.lacks("padding") else 3
        found = difference(_alone(subject, Plan(variant.options, micro=1, padding=padding)), whole, TOLERANCE)
        if found is not None:
            wide = _alone(subject, Plan(variant.options, padding=padding))
            what = "the micro-batch" if difference(wide, whole, TOLERANCE) is None else "padding"
            hint = (
                "buffers: add real tokens to a loopkit.loop.Tally in forward, and set them in update_buffers(); "
                "losses: give means over what mean_over says, with padding left out"
            )
            raise Violation(f"what it is after training depends on {what}", _seen(*found), hint)


@rule("ranks", TRAINED, after=("engine step", "micro-batch"))
def ranks(subject: ComponentUnderTest) -> None:
    """Trained on two ranks, its weights and buffers are equal on both, and those of one rank."""
    for variant in engine_variants(subject):
        buffers = any(True for part in parts_of(subject, build(subject, variant.options)) for _ in part.buffers())
        plan = Plan(variant.options, steps=STEPS_WITH_BUFFERS if buffers else STEPS)
        try:
            first, second = train_on_two_ranks(subject, replace(plan, micro=1))
        except RankFailed as error:
            raise Violation(f"it cannot be trained on two ranks{_with(variant)}", str(error)) from None
        if (found := difference(first, second, 0.0)) is not None:
            hint = "draw no random number of your own, and set buffers from tallies alone: these are summed over ranks"
            raise Violation(f"two ranks differ after training{_with(variant)}", _seen(*found), hint)
        if _any_split(subject, variant):
            found = difference(first, _alone(subject, plan), TOLERANCE)
            if found is not None:
                raise Violation(f"two ranks come to other numbers than one{_with(variant)}", _seen(*found))


def _any_split(subject: ComponentUnderTest, variant: Variant) -> bool:
    """Whether the same numbers are promised for any split of the batch.

    Not by regularizers that say so, and not by optimizers: they may amplify the rounding of the gradients they receive.
    """
    match subject.schema.kind:
        case "optimizer":
            return False
        case "regularizer":
            return bool(subject.build(variant.options).mean_over != "micro_batch")
    return True


def _alone(subject: ComponentUnderTest, plan: Plan) -> dict[str, Tensor]:
    """What one rank comes to; checks share it."""
    key = ("alone", repr(plan))
    if key not in subject.memo:
        subject.memo[key] = train(subject, plan, alone())
    found: dict[str, Tensor] = subject.memo[key]
    return found


def _seen(name: str, gap: float) -> str:
    return f"'{name}' differs by {gap:.1e}"


def _with(variant: Variant) -> str:
    return f" with {variant.name}" if variant.name else ""
