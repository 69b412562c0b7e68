"""Regularizers of the recurrence's Jacobian against dense Jacobians, and what they leave alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.regularizer import Regularizer
from loopkit.components.regularizer.jacobian import JSRR, JacobianFrobenius, normalize, random_vector, squared_length
from loopkit.loop import PAD, Batch, Loops, Trajectory
from loopkit.model import LoopedModel
from tests.model.tiny import batch, tiny

FORMS: list[dict[str, Any]] = [
    {"product": product, "scope": scope} for product in ("jvp", "vjp") for scope in ("sample", "batch", "token")
]
MODELS: list[dict[str, Any]] = [
    {},
    {"carry": "norm", "injection": "add"},
    {"block": {"type": "transformer", "attention": {"heads": 2}, "placement": "post_sandwich", "norm": "layernorm"}},
]


def small(**parts: Any) -> LoopedModel:
    return tiny(width=8, core=1, dtype=torch.float64, **parts)


def dense(t: Trajectory) -> Tensor:
    """J of the whole batch at its last state, ``[N, N]``, itself differentiable."""
    c = t.carried(t.reached).detach()
    jacobian = torch.autograd.functional.jacobian(lambda x: t.step(x), c, create_graph=True)
    return jacobian.reshape(c.numel(), c.numel())


def gradients(model: LoopedModel, value: Tensor) -> Tensor:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(value, parameters, allow_unused=True, retain_graph=True)
    return torch.cat(
        [torch.zeros(p.numel()) if g is None else g.flatten() for p, g in zip(parameters, gradients, strict=True)]
    )


@pytest.mark.parametrize("parts", MODELS, ids=["plain", "injected", "sandwich"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))
def test_value_and_gradient_equal_dense_jacobian(form: dict[str, Any], parts: dict[str, Any]) -> None:
    model, data = small(**parts), batch(2, 3)
    t = model.run(data, Loops.fixed(2))
    jsrr = JSRR(**form)
    v = normalize(random_vector(t, t.carried(2), 0), jsrr.scope)
    j = dense(t)
    w = (j if form["product"] == "jvp" else j.T) @ v.flatten()
    exact = squared_length(w.view_as(v), t, jsrr.scope)
    value = jsrr(t)
    assert value.item() == pytest.approx(exact.item(), rel=1e-9)
    torch.testing.assert_close(gradients(model, value), gradients(model, exact), rtol=1e-6, atol=1e-9)


def test_power_iterations_approach_largest_singular_value() -> None:
    t = small().run(batch(1, 3), Loops.fixed(2))
    j = dense(t).detach()
    v = normalize(random_vector(t, t.carried(2), 0), "sample").flatten()
    for _ in range(2):
        v = j @ v / (j @ v).norm()
    assert JSRR(power_iterations=3)(t).item() == pytest.approx((j @ v).square().sum().item())


@pytest.mark.parametrize("power_grad", ["last", "all"])
def test_which_products_carry_gradient(power_grad: str) -> None:
    model = small()
    t = model.run(batch(1, 3), Loops.fixed(2))
    j, v = dense(t), normalize(random_vector(t, t.carried(2), 0), "sample").flatten()
    first = j @ v / (j @ v).norm()
    first = first.detach() if power_grad == "last" else first
    exact = gradients(model, (j @ first).square().sum())
    ours = gradients(model, JSRR(power_iterations=2, power_grad=power_grad)(t))  # type: ignore[arg-type]
    torch.testing.assert_close(ours, exact, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", [{"product": "jvp"}, {"product": "vjp"}, {"scope": "token"}])
def test_value_is_invariant_to_batch_split(form: dict[str, Any]) -> None:
    model, data = small(), batch(4, 5)
    value = JSRR(**form)(model.run(data, Loops.fixed(2)))
    parts = [JSRR(**form)(model.run(part, Loops.fixed(2))) for part in data.split(1)]
    torch.testing.assert_close(value, torch.stack(parts).mean())
    torch.testing.assert_close(gradients(model, value), sum(gradients(model, part) for part in parts) / 4)


@pytest.mark.parametrize("regularizer", [*(JSRR(**form) for form in FORMS), JacobianFrobenius()])
def test_padding_counts_nowhere(regularizer: Regularizer) -> None:
    model, short = small(), batch(rows=2, length=5)
    places = torch.cat([short.positions, torch.full((2, 4), PAD)], dim=1)
    filler = torch.full((2, 4), 3)
    padded = Batch(torch.cat([short.tokens, filler], 1), torch.cat([short.labels, filler], 1), places, short.sample)
    torch.testing.assert_close(
        regularizer(model.run(padded, Loops.fixed(2))), regularizer(model.run(short, Loops.fixed(2)))
    )


def test_mean_over_vectors_is_scaled_frobenius_norm() -> None:
    t = small().run(batch(2, 3), Loops.fixed(2))
    rows = dense(t).detach().view(2, 24, 2, 24)
    exact = torch.stack([rows[i, :, i].square().sum() for i in range(2)]).mean() / 24
    with torch.no_grad():  # the products are made with gradient whoever asks
        assert JacobianFrobenius(vectors=400)(t).item() == pytest.approx(exact.item(), rel=0.1)
    keys = [JSRR()(t.model.run(t.batch, t.loops, noise_key=(0, step))).item() for step in range(400)]
    assert sum(keys) / 400 == pytest.approx(exact.item(), rel=0.1)
    assert len(set(keys)) == 400


def test_detached_state_receives_no_gradient() -> None:
    model = small(position="learned")
    table = model.embedding.tokens.weight
    for detach, reached in ((True, False), (False, True)):
        t = model.run(batch(2, 3), Loops.fixed(2))
        for product in ("vjp", "jvp"):
            value = JSRR(product=product, detach=detach)(t)  # type: ignore[arg-type]
            (gradient,) = torch.autograd.grad(value, table, allow_unused=True, retain_graph=True)
            assert (gradient is not None and bool(gradient.abs().sum() > 0)) == reached


def test_dropout_can_be_disabled_in_extra_application() -> None:
    block = {"type": "transformer", "attention": {"heads": 2, "dropout": 0.5}, "dropout": 0.5}
    model = small(block=block)
    t = model.run(batch(2, 3), Loops.fixed(2))
    quiet = JSRR()(t).item()
    model.train()
    model.core.eval()
    modes = [part.training for part in model.modules()]
    model.core.train()
    assert JSRR(dropout=False)(t).item() == pytest.approx(quiet)
    assert JSRR(dropout=True)(t).item() != pytest.approx(quiet)
    model.core.eval()
    JSRR(dropout=True)(t)
    assert [part.training for part in model.modules()] == modes


def test_when_it_counts() -> None:
    assert [step for step in range(12) if JSRR(start_step=3, every=4).active(step)] == [3, 7, 11]
    assert JSRR().active(0)
    code = JSRR(preset="code")
    assert (code.product, code.scope, code.active(1999), code.active(2000)) == ("vjp", "batch", False, True)
    assert JSRR(preset="code", scope="sample", start_step=0).scope == "sample"
    assert JSRR(preset="code", start_step=0).active(0)


def test_under_autocast() -> None:
    model = tiny(width=8, core=1)
    exact = JSRR()(model.run(batch(2, 3), Loops.fixed(2))).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        t = model.run(batch(2, 3), Loops.fixed(2))
        for product in ("jvp", "vjp"):
            value = JSRR(product=product)(t)  # type: ignore[arg-type]
            assert value.dtype == torch.float32
            assert value.item() == pytest.approx(exact, rel=0.3)
            value.backward(retain_graph=True)
    assert all(parameter.grad.isfinite().all() for parameter in model.core.parameters())


def test_zeros_have_no_direction() -> None:
    assert normalize(torch.zeros(2, 3, 4), "sample").tolist() == torch.zeros(2, 3, 4).tolist()
