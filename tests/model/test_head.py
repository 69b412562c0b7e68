"""The head: logits or losses, in the finer of two precisions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from loopkit.model.head import Head
from tests.components.steps import random


def test_logits_and_losses_agree() -> None:
    head, z, labels = Head(4, 7, bias=True), random(2, 3, 4), torch.tensor([[0, 6, 2], [1, 1, 5]])
    logits = head(z)
    torch.testing.assert_close(logits, z @ head.weight.T + head.bias)
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(2, 3)
    torch.testing.assert_close(head(z, labels), expected)
    assert Head(4, 7).bias is None


def test_head_uses_the_finer_input_precision() -> None:
    head, z = Head(4, 7, bias=True), random(2, 4, dtype=torch.float64)
    assert head(z).dtype == torch.float64
    assert head(z, torch.tensor([1, 2])).dtype == torch.float64
    assert head(z.float()).dtype == torch.float32


@pytest.mark.parametrize("bias", [False, True])
def test_autocast_rounds_operands_and_not_logits(bias: bool) -> None:
    """Logits, their gradient-free form and the losses are those of bf16 operands in fp32 sums: none is rounded to bf16,
    so logits that differ by less than the spacing of bf16 remain distinct."""
    head, z = Head(64, 7, bias=bias), 20 * random(3, 5, 64)
    labels = torch.arange(15).view(3, 5) % 7
    exact = z.bfloat16().double() @ head.weight.bfloat16().double().T + (head.bias.double() if bias else 0.0)
    with torch.autocast("cpu", torch.bfloat16):
        logits, losses = head(z), head(z, labels)
        with torch.no_grad():
            torch.testing.assert_close(head(z), logits, rtol=0, atol=0)
    assert logits.dtype == losses.dtype == torch.float32
    torch.testing.assert_close(logits.double(), exact, rtol=1e-5, atol=1e-5)
    assert (logits != logits.bfloat16().float()).any()
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(3, 5)
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)


def test_bf16_weights_give_fp32_logits() -> None:
    """Without autocast the same holds for a model whose parameters are bf16 throughout."""
    head, z = Head(64, 7).bfloat16(), 20 * random(5, 64).bfloat16()
    exact = z.double() @ head.weight.double().T
    for logits in (head(z), head(z.detach()), head(z.detach()).detach()):
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(head(z, torch.arange(5)), F.cross_entropy(logits, torch.arange(5), reduction="none"))


def test_logits_pass_gradients_under_autocast() -> None:
    head, z = Head(8, 7, bias=True), random(3, 8).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        head(z).square().sum().backward()
    wide = (z.detach().clone().requires_grad_(), head.weight.detach().clone().requires_grad_())
    (wide[0] @ wide[1].T + head.bias.detach()).square().sum().backward()
    torch.testing.assert_close(z.grad, wide[0].grad, rtol=0.05, atol=0.05)
    torch.testing.assert_close(head.weight.grad, wide[1].grad, rtol=0.05, atol=0.05)
