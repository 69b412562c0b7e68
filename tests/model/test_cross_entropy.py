"""The chunked head equals the dense one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from loopkit.model import cross_entropy
from loopkit.model.cross_entropy import linear_nll

N, D, V = 37, 8, 29


def inputs(dtype: torch.dtype = torch.float64, *, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    z, weight, offset = normal(N, D), normal(V, D), normal(V)
    labels = torch.randint(0, V, (N,), generator=generator)
    return z, weight, offset if bias else None, labels


def dense(z: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    return F.cross_entropy(
        F.linear(z, weight, bias).float() if z.dtype != torch.float64 else F.linear(z, weight, bias),
        labels,
        reduction="none",
    )


def gradients(values: Tensor, upstream: Tensor, *wrt: Tensor | None) -> list[Tensor]:
    return list(torch.autograd.grad(values, [part for part in wrt if part is not None], upstream))


@pytest.fixture(params=[1, 200, 2**26], ids=["one row at a time", "some parts", "one part"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(cross_entropy, "LOGITS", request.param)
    return request.param


UPSTREAM = {
    "mean": torch.full((N,), 1 / N, dtype=torch.float64),
    "weighted": torch.linspace(-1, 2, N, dtype=torch.float64),
    "one row": torch.eye(N, dtype=torch.float64)[5],
    "nothing": torch.zeros(N, dtype=torch.float64),
}


CASES = [(upstream, None) for upstream in UPSTREAM] + [(name, UPSTREAM[name]) for name in UPSTREAM]
CASES += [("mean", 1.0), ("nothing", 1.0), ("nothing", UPSTREAM["weighted"]), ("weighted", 3 * UPSTREAM["weighted"])]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("upstream", "row_weight"), CASES)
def test_values_and_gradients_equal_dense_path(parts: int, upstream: str, row_weight: Any, bias: bool) -> None:
    z, weight, offset, labels = inputs(bias=bias)
    got = linear_nll(z, weight, offset, labels, row_weight)
    expected = dense(z, weight, offset, labels)
    torch.testing.assert_close(got, expected)
    for a, b in zip(
        gradients(got, UPSTREAM[upstream], z, weight, offset),
        gradients(expected, UPSTREAM[upstream], z, weight, offset),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_equals_torch_chunked_cross_entropy() -> None:
    if not hasattr(F, "linear_cross_entropy"):
        pytest.skip("this torch has no linear_cross_entropy")
    z, weight, _, labels = inputs(torch.float32, bias=False)
    actual = linear_nll(z, weight, None, labels).mean()
    expected = F.linear_cross_entropy(z, weight, labels, options=torch.nn.LinearCrossEntropyOptions())
    torch.testing.assert_close(actual, expected)
    for a, b in zip(torch.autograd.grad(actual, (z, weight)), torch.autograd.grad(expected, (z, weight)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("row_weight", "times"), [(1.0, 1), (UPSTREAM["mean"], 1), (None, 2)])
def test_only_unknown_weights_recompute_logits(row_weight: Any, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    log_p = cross_entropy._log_p
    monkeypatch.setattr(cross_entropy, "_log_p", lambda *args: calls.append(1) or log_p(*args))
    z, weight, _, labels = inputs(bias=False)
    gradients(linear_nll(z, weight, None, labels, row_weight), UPSTREAM["mean"], z, weight)
    assert len(calls) == times


@pytest.mark.parametrize(
    ("upstream", "row_weight"),
    [("weighted", 1.0), ("one row", UPSTREAM["weighted"]), ("mean", UPSTREAM["nothing"])],
)
def test_gradient_of_another_weight_is_an_error(upstream: str, row_weight: Any) -> None:
    z, weight, _, labels = inputs(bias=False)
    values = linear_nll(z, weight, None, labels, row_weight)
    with pytest.raises(RuntimeError, match="not a multiple of the weight that was stated"):
        gradients(values, UPSTREAM[upstream], z, weight)


@pytest.mark.parametrize(("grad_z", "grad_weight"), [(True, False), (False, True)])
def test_only_required_gradients_are_computed(grad_z: bool, grad_weight: bool) -> None:
    z, weight, _, labels = inputs(bias=False)
    z, weight = z.detach().requires_grad_(grad_z), weight.detach().requires_grad_(grad_weight)
    linear_nll(z, weight, None, labels).sum().backward()
    assert (z.grad is not None, weight.grad is not None) == (grad_z, grad_weight)
    with torch.no_grad():
        assert not linear_nll(z, weight, None, labels).requires_grad


def test_autocast_products_are_bf16_sums_fp32() -> None:
    z, weight, offset, labels = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        got = linear_nll(z, weight, offset, labels)
        expected = dense(z, weight, offset, labels)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=0.02, atol=0.02)
    exact = dense(*(part.double() for part in (z, weight, offset)), labels)
    assert (got - exact).abs().max() > 1e-5
    upstream = torch.full((N,), 1 / N)
    for a, b in zip(
        gradients(got, upstream, z, weight, offset), gradients(exact.float(), upstream, z, weight, offset), strict=True
    ):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.02, atol=2e-3)


def test_large_logits_neither_overflow_nor_vanish() -> None:
    z, weight, _, labels = inputs(torch.float32, bias=False)
    got = linear_nll(z * 1e4, weight, None, labels)
    torch.testing.assert_close(got, dense(z * 1e4, weight, None, labels))
    got.mean().backward()
    assert z.grad.isfinite().all()


def test_shapes_and_empty_inputs() -> None:
    z, weight, _, labels = inputs(bias=False)
    assert linear_nll(z[:36].view(3, 12, D), weight, None, labels[:36].view(3, 12)).shape == (3, 12)
    empty = linear_nll(z[:0], weight, None, labels[:0])
    assert empty.shape == (0,)
    empty.sum().backward()
    assert weight.grad.abs().sum() == 0


def test_uniform_logits_give_log_vocabulary() -> None:
    z = torch.zeros(5, D)
    got = linear_nll(z, torch.zeros(20000, D), None, torch.tensor([0, 1, 2, 3, 19999]))
    assert got.exp().tolist() == pytest.approx([20000] * 5, rel=1e-6)
