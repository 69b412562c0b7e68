"""Modules of the loop: one application of the recurrence can be differentiated forwards, and twice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from loopkit.testing.case import LOOP, NotChecked, Violation, rule, saying
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.harness import LOOPS, model, run, tokens

CLOSE = 1e-5
"""Relative difference in fp64, of products whose exact values are equal; central differences reach 1e-8."""

STEP = 1e-5


@rule("jvp", (*LOOP, "gate", "position"), after=("in place", "keeps nothing", "seed"))
def jvp(subject: ComponentUnderTest) -> None:
    """Forward-mode differentiation works and agrees with the backward pass, or it says lacks={"jvp"}."""
    if subject.lacks("jvp"):
        raise NotChecked("it says that it lacks jvp")
    apply, c = _application(subject)
    hint = 'give a torch.autograd.Function setup_context() and jvp(); or state lacks={"jvp"}'
    v, w = _direction(c, 1), _direction(apply(c), 2)
    with saying("it cannot be differentiated in forward mode", hint):
        forward = torch.func.jvp(apply, (c,), (v,))[1]
    held = c.clone().requires_grad_()
    (backward,) = torch.autograd.grad((apply(held) * w).sum(), held)
    _agree("forward-mode and backward differentiation disagree", (forward * w).sum(), (backward * v).sum(), hint)


@rule("double backward", (*LOOP, "gate", "position"), after=("in place", "keeps nothing", "seed"))
def double_backward(subject: ComponentUnderTest) -> None:
    """The backward pass can be differentiated, and rightly, or it says lacks={"double_backward"}."""
    if subject.lacks("double_backward"):
        raise NotChecked("it says that it lacks double_backward")
    apply, c = _application(subject)
    v, w, u = _direction(c, 1), _direction(apply(c), 2), _direction(c, 3)

    def slope(c: Tensor, create_graph: bool) -> Tensor:
        """<J^T w, v> at ``c``."""
        (gradient,) = torch.autograd.grad((apply(c) * w).sum(), c, create_graph=create_graph)
        return (gradient * v).sum()

    hint = (
        "a torch.autograd.Function must be differentiable in its backward, without once_differentiable or detach; "
        'or state lacks={"double_backward"}: recipes that differentiate twice then refuse it'
    )
    held = c.clone().requires_grad_()
    with saying("its backward pass cannot be differentiated", hint):
        value = slope(held, True)
        second = torch.zeros_like(c)
        if value.requires_grad:  # where not, it claims to be linear in the state
            (found,) = torch.autograd.grad(value, held, allow_unused=True)
            second = second if found is None else found
    ahead, behind = (slope((c + sign * STEP * u).requires_grad_(), False) for sign in (1, -1))
    _agree("its second derivative is wrong", (second * u).sum(), (ahead - behind).detach() / (2 * STEP), hint, 1e-4)


def _application(subject: ComponentUnderTest) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """What is differentiated, in fp64, and where: the recurrence; of a gate, its logit."""
    parts = {"carry": "readout"} if subject.schema.kind == "readout" else {}
    around = model(subject, torch.float64, **parts)
    with torch.no_grad():
        t = run(around, tokens(rows=2, length=5))
        c = t.carried(LOOPS).detach()
    if subject.schema.kind != "gate":
        return t.step, c
    if "gate" not in subject.traits.get("provides", ()):
        raise NotChecked("it provides no gate")

    def gate(c: Tensor) -> Tensor:
        with sdpa_kernel([SDPBackend.MATH]):
            h = around.emit(c)
            value: Tensor = around.gate(h, lambda: t.read(c, 1, LOOPS), t.context(1, c))
            return value

    return gate, c


def _direction(like: Tensor, seed: int) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(seed))


def _agree(what: str, left: Tensor, right: Tensor, hint: str, tolerance: float = CLOSE) -> None:
    scale = max(abs(left.item()), abs(right.item()), 1e-3)
    gap = abs(left.item() - right.item()) / scale
    if not gap < tolerance:
        raise Violation(what, f"{left.item():.8g} and {right.item():.8g}, which should be equal", hint)
