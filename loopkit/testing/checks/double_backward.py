"""Modules of the loop: one application of the recurrence can be differentiated twice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, default_model, random_batch, run_model
from loopkit.testing.rules import LOOP, NotChecked, Violation, report_as_violation, rule

TOLERANCE = 1e-4
"""Largest relative error of a directional second derivative in fp64."""

STEP = 1e-5
"""Step of the central difference."""


@rule("double backward", (*LOOP, "gate", "position"), after=("in place", "keeps nothing", "seed"))
def double_backward(subject: ComponentUnderTest) -> None:
    """Its backward pass has a correct derivative, or its registration states lacks={"double_backward"}."""
    if subject.lacks("double_backward"):
        raise NotChecked("its registration lists double_backward under lacks")
    apply, c = _application(subject)
    v, w, u = _direction(c, 1), _direction(apply(c), 2), _direction(c, 3)

    def slope(c: Tensor, create_graph: bool) -> Tensor:
        """<J^T w, v> at ``c``."""
        (gradient,) = torch.autograd.grad((apply(c) * w).sum(), c, create_graph=create_graph)
        return (gradient * v).sum()

    hint = (
        "the backward of a torch.autograd.Function must be differentiable, without once_differentiable or detach; "
        'or state lacks={"double_backward"}, so that recipes which differentiate twice reject it'
    )
    point = c.clone().requires_grad_()
    with report_as_violation("its backward pass cannot be differentiated", hint):
        value = slope(point, True)
        second = torch.zeros_like(c)
        if value.requires_grad:  # otherwise it is linear in the state
            (gradient,) = torch.autograd.grad(value, point, allow_unused=True)
            second = second if gradient is None else gradient
    ahead, behind = (slope((c + sign * STEP * u).requires_grad_(), False) for sign in (1, -1))
    expected = (ahead - behind).detach() / (2 * STEP)
    actual = (second * u).sum()
    scale = max(abs(actual.item()), abs(expected.item()), 1e-3)
    if not abs(actual.item() - expected.item()) / scale < TOLERANCE:
        seen = f"{actual.item():.8g}, not {expected.item():.8g} as by central differences"
        raise Violation("its second derivative is wrong", seen, hint)


def _application(subject: ComponentUnderTest) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The differentiated function, in fp64, and its argument: the recurrence, or the logit of a gate."""
    overrides = {"carry": "readout"} if subject.schema.kind == "readout" else {}
    model = default_model(subject, torch.float64, **overrides)
    with torch.no_grad():
        t = run_model(model, random_batch(rows=2, length=5))
        c = t.carried(LOOPS).detach()
    if subject.schema.kind != "gate":
        return t.step, c
    if "gate" not in subject.traits.get("provides", ()):
        raise NotChecked("it provides no gate")

    def gate(c: Tensor) -> Tensor:
        with sdpa_kernel([SDPBackend.MATH]):
            h = model.emit(c)
            value: Tensor = model.gate(h, lambda: t.read(c, 1, LOOPS), t.context(1, c))
            return value

    return gate, c


def _direction(like: Tensor, seed: int) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(seed))
