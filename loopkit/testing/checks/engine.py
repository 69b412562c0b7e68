"""Kinds that take part in training: optimizer steps, micro-batches and ranks."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import build_model_around
from loopkit.testing.rank_pair import RankFailed, train_on_two_ranks
from loopkit.testing.recording import find_instances
from loopkit.testing.rules import MODULES, NotChecked, Violation, report_as_violation, rule
from loopkit.testing.training_run import TRAINED, TrainingPlan, engine_variants, first_difference, join_alone, train
from loopkit.testing.variants import Variant

BEFORE = (
    *("builds", "gradient", "only tallies change", "seed", "causal", "batch", "padding"),
    *("loss", "value", "micro-batch value", "descends"),
)
"""Rules whose violation would also show here."""

TOLERANCE = 1e-4
"""Allows for another order of summation, in parameters and buffers after a few steps."""

STEPS_WITH_BUFFERS, STEPS = 5, 2


@rule("engine step", TRAINED, after=BEFORE)
def engine_step(subject: ComponentUnderTest) -> None:
    """The training engine takes steps with it: parameters stay finite, and frozen ones do not change."""
    for variant in engine_variants(subject):
        with report_as_violation(f"the training engine cannot take a step with it{_with(variant)}"):
            after = _train_alone(subject, TrainingPlan(variant.options))
        invalid = [name for name, value in after.items() if not value.isfinite().all()]
        if invalid:
            raise Violation(f"'{invalid[0]}' is not finite after two steps of training{_with(variant)}")
        if subject.schema.kind in MODULES:
            _check_frozen(subject, variant)


def _check_frozen(subject: ComponentUnderTest, variant: Variant) -> None:
    before = build_model_around(subject, variant.options)
    own = {id(p) for module in find_instances(subject, before) for p in module.parameters()}
    names = [name for name, parameter in before.named_parameters() if id(parameter) in own]
    if not names:
        return
    with report_as_violation(f"the training engine cannot take a step with it{_with(variant)} if it is frozen"):
        after = _train_alone(subject, TrainingPlan(variant.options, frozen=True))
    moved = [name for name in names if not torch.equal(after[f"model.{name}"], before.get_parameter(name))]
    if moved:
        hint = "do not set requires_grad of parameters: train.trainable sets it"
        raise Violation(f"its parameter '{moved[0]}' is trained although train.trainable excludes it", hint=hint)


@rule("micro-batch", TRAINED, after=("engine step", "stops", "depth", "save and load"))
def micro_batch(subject: ComponentUnderTest) -> None:
    """Weights and buffers after training depend neither on the micro-batch nor on padding."""
    for variant in engine_variants(subject):
        if not _is_split_invariant(subject, variant):
            raise NotChecked("its result depends on the micro-batch, or it amplifies rounding")
        expected = _train_alone(subject, TrainingPlan(variant.options))
        padding = 0 if subject.lacks("padding") else 3
        difference = first_difference(
            _train_alone(subject, TrainingPlan(variant.options, micro_batch=1, padding=padding)), expected, TOLERANCE
        )
        if difference is not None:
            padded = _train_alone(subject, TrainingPlan(variant.options, padding=padding))
            cause = "the micro-batch" if first_difference(padded, expected, TOLERANCE) is None else "padding"
            hint = (
                "buffers: add the tokens of step.counted to a loopkit.loop.Tally in forward, and set them in "
                "update_buffers(); losses: return means over the unit that mean_over states, without padding"
            )
            raise Violation(f"its state after training depends on {cause}", _format_difference(*difference), hint)


@rule("ranks", TRAINED, after=("engine step", "micro-batch"))
def ranks(subject: ComponentUnderTest) -> None:
    """Trained on two ranks, its weights and buffers are equal on both, and those of one rank."""
    for variant in engine_variants(subject):
        buffers = any(
            True
            for module in find_instances(subject, build_model_around(subject, variant.options))
            for _ in module.buffers()
        )
        plan = TrainingPlan(variant.options, num_steps=STEPS_WITH_BUFFERS if buffers else STEPS)
        try:
            first, second = train_on_two_ranks(subject, replace(plan, micro_batch=1))
        except RankFailed as error:
            raise Violation(f"it cannot be trained on two ranks{_with(variant)}", str(error)) from None
        if (difference := first_difference(first, second, 0.0)) is not None:
            hint = "draw no random numbers, and set buffers only from tallies, which are summed over ranks"
            raise Violation(f"two ranks differ after training{_with(variant)}", _format_difference(*difference), hint)
        if _is_split_invariant(subject, variant):
            difference = first_difference(first, _train_alone(subject, plan), TOLERANCE)
            if difference is not None:
                raise Violation(f"two ranks differ from one rank{_with(variant)}", _format_difference(*difference))


def _is_split_invariant(subject: ComponentUnderTest, variant: Variant) -> bool:
    """Whether the result must be the same for any split of the batch.

    Some regularizers state that it is not, and optimizers may amplify the rounding of gradients.
    """
    match subject.schema.kind:
        case "optimizer":
            return False
        case "regularizer":
            return bool(subject.build(variant.options).mean_over != "micro_batch")
    return True


def _train_alone(subject: ComponentUnderTest, plan: TrainingPlan) -> dict[str, Tensor]:
    """The state after training on one rank; computed once per plan."""
    key = ("training run", repr(plan))
    if key not in subject.memo:
        subject.memo[key] = train(subject, plan, join_alone())
    state: dict[str, Tensor] = subject.memo[key]
    return state


def _format_difference(name: str, gap: float) -> str:
    return f"'{name}' differs by {gap:.1e}"


def _with(variant: Variant) -> str:
    return f" with {variant.name}" if variant.name else ""
