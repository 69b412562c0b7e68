"""Positions: the learned table, and rotations in both pairings."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from loopkit.components.position import Learned, NoPosition, Rope
from loopkit.loop import PAD
from tests.components.steps import random


def test_learned_adds_its_row_and_tolerates_padding() -> None:
    position, x = Learned(4, 6), random(1, 3, 4)
    places = torch.tensor([[5, 0, PAD]])
    got = position.embed(x, places)
    torch.testing.assert_close(got[0, 0], x[0, 0] + position.table.weight[5])
    torch.testing.assert_close(got[0, 1], x[0, 1] + position.table.weight[0])
    assert got.isfinite().all()
    with pytest.raises(ValueError, match="position 6 is past the 6 learned positions"):
        position.embed(x, torch.tensor([[6, 0, 1]]))


def test_each_position_changes_embedding_or_heads_only() -> None:
    x, places, q = random(1, 3, 4), torch.arange(3)[None], random(1, 2, 3, 4)
    assert torch.equal(Rope().embed(x, places), x)
    assert torch.equal(NoPosition().embed(x, places), x)
    for position in (NoPosition(), Learned(4, 3)):
        assert all(torch.equal(part, q) for part in position.rotate(q, q, places))


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_rope_is_multiplication_by_a_complex_number(pairing: Literal["halves", "interleaved"]) -> None:
    q, k = random(1, 2, 5, 8, dtype=torch.float64), random(1, 3, 5, 8, seed=1, dtype=torch.float64)
    places = torch.tensor([[0, 1, 2, 100, 5000]])
    got_q, got_k = Rope(base=100.0, pairing=pairing).rotate(q, k, places)
    turn = torch.polar(
        torch.ones(5, 4, dtype=torch.float64),
        places[0, :, None].double() * 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4),
    )
    for given, got in ((q, got_q), (k, got_k)):
        if pairing == "halves":
            pairs, out = torch.complex(given[..., :4], given[..., 4:]), torch.complex(got[..., :4], got[..., 4:])
        else:
            pairs = torch.complex(given[..., 0::2], given[..., 1::2])
            out = torch.complex(got[..., 0::2], got[..., 1::2])
        torch.testing.assert_close(out, pairs * turn)


def test_rope_depends_only_on_distance() -> None:
    q, k = random(1, 1, 2, 16), random(1, 1, 2, 16, seed=1)

    def product(first: int) -> torch.Tensor:
        a, b = Rope().rotate(q, k, torch.tensor([[first, first + 3]]))
        return (a[0, 0, 0] * b[0, 0, 1]).sum()

    torch.testing.assert_close(product(1000), product(0), rtol=1e-3, atol=1e-3)
    narrow, _ = Rope().rotate(q.bfloat16(), k.bfloat16(), torch.tensor([[4001, 4002]]))
    wide, _ = Rope().rotate(q, k, torch.tensor([[4001, 4002]]))
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.float(), wide, rtol=0.02, atol=0.02)


def test_rope_needs_pairs() -> None:
    with pytest.raises(ValueError, match="head size must be even, not 3"):
        Rope().rotate(random(1, 1, 2, 3), random(1, 1, 2, 3), torch.arange(2)[None])
