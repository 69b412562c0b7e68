"""Gates: exit logits as registered, and stop decisions that follow from the seed."""

from __future__ import annotations

import torch
from torch import Tensor

from loopkit.loop import Trajectory
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, ROWS, compute_loss, default_model, random_batch, run_model
from loopkit.testing.rules import NotChecked, Violation, report_as_violation, rule


@rule("provides a gate", ("gate",), after=("in place",))
def provides_a_gate(subject: ComponentUnderTest) -> None:
    """Its registration states provides={"gate"} exactly if it has exit logits."""
    stated, t = "gate" in subject.traits.get("provides", ()), run_model(default_model(subject), random_batch())
    try:
        t.gate(1)
        has_gate = True
    except ValueError:
        has_gate = False
    if has_gate and not stated:
        raise Violation("it has exit logits without stating provides", hint='@register(..., provides={"gate"})')
    if stated and not has_gate:
        raise Violation('it states provides={"gate"} but has no exit logits')
    if not stated:
        raise NotChecked("it provides no gate")


@rule("stops", ("gate",), after=("gradient",))
def stops(subject: ComponentUnderTest) -> None:
    """In training it decides for each sequence whether to stop, by the seed, without fewer core calls."""
    model = default_model(subject).train()
    if model.stops != bool(subject.traits.get("stops", False)):
        seen = f"it {'overrides' if model.stops else 'does not override'} stop()"
        hint = f"state @register(..., stops={model.stops}), so that validate refuses truncated backpropagation"
        raise Violation("its registration and its stop method disagree", seen, hint)
    if not model.stops:
        raise NotChecked("it does not stop sequences in training")
    calls: list[int] = []
    model.core.register_forward_hook(lambda *_: calls.append(1))
    decisions = [_decisions(subject, seed) for seed in (1, 2)]
    for k, decision in enumerate(decisions[0], 1):
        if decision is not None and (decision.dtype != torch.bool or list(decision.shape) != [ROWS]):
            seen = f"{decision.dtype} {list(decision.shape)} after loop {k}, not torch.bool [{ROWS}]"
            raise Violation("stop() returns no decision for each sequence", seen, "return a [B] bool tensor, or None")
    equal = [a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in zip(*decisions, strict=True)]
    if not all(equal):
        hint = "draw from t.noise.fold(...), which is keyed by seed, step, sample and position"
        raise Violation("its stop decisions do not follow from the seed", f"after loop {equal.index(False) + 1}", hint)
    with report_as_violation("a loss fails after it has stopped sequences"):
        compute_loss(run_model(model, random_batch())).backward()
    if len(calls) != LOOPS:
        raise Violation("a pass in which it stops sequences makes fewer core calls", f"{len(calls)}, not {LOOPS}")


def _decisions(subject: ComponentUnderTest, seed: int) -> list[Tensor | None]:
    """Its decision after each loop of one pass."""
    decisions: list[Tensor | None] = []
    model = default_model(subject).train()
    stop = model.gate.stop

    def recording_stop(t: Trajectory, k: int) -> Tensor | None:
        decisions.append(stop(t, k))
        return decisions[-1]

    model.gate.stop = recording_stop  # type: ignore[method-assign]
    run_model(model, random_batch(), seed=seed)
    return decisions
