"""The head: logits or losses, in the finer of two precisions."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from loopkit.model.head import Head
from tests.components.steps import random


def test_logits_and_losses_agree() -> None:
    head, z, labels = Head(4, 7, bias=True), random(2, 3, 4), torch.tensor([[0, 6, 2], [1, 1, 5]])
    logits = head(z)
    torch.testing.assert_close(logits, z @ head.weight.T + head.bias)
    wanted = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(2, 3)
    torch.testing.assert_close(head(z, labels), wanted)
    assert Head(4, 7).bias is None


def test_follows_a_finer_input() -> None:
    head, z = Head(4, 7, bias=True), random(2, 4, dtype=torch.float64)
    assert head(z).dtype == torch.float64
    assert head(z, torch.tensor([1, 2])).dtype == torch.float64
    assert head(z.float()).dtype == torch.float32
