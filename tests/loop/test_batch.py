"""Batches: validation and properties."""

from __future__ import annotations

import pytest
import torch

from loopkit.loop import IGNORE, PAD, Batch


def make(positions: list[list[int]], labels: list[list[int]] | None = None) -> Batch:
    places = torch.tensor(positions)
    return Batch(
        tokens=torch.zeros_like(places),
        labels=torch.zeros_like(places) if labels is None else torch.tensor(labels),
        positions=places,
        sample=torch.arange(len(positions)),
    )


@pytest.mark.parametrize(
    ("positions", "in_order"),
    [
        ([[0, 1, 2]], True),
        ([[5, 7, 9]], True),
        ([[0, 1, PAD], [0, PAD, PAD]], True),
        ([[PAD, PAD, PAD]], True),
        ([[PAD, 0, 1]], False),
        ([[0, 1, 2], [PAD, 0, 1]], False),
    ],
)
def test_in_order_detects_plain_causal_mask(positions: list[list[int]], in_order: bool) -> None:
    assert make(positions).in_order is in_order


@pytest.mark.parametrize("positions", [[[0, 0, 1]], [[2, 1, 0]], [[0, 1, 0]]])
def test_positions_must_increase(positions: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="positions must rise"):
        make(positions)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": torch.zeros(3, dtype=torch.int64)}, r"tokens must be \[B, T\]"),
        ({"labels": torch.zeros(2, 4, dtype=torch.int64)}, r"labels must be \[2, 3\]"),
        ({"sample": torch.zeros(3, dtype=torch.int64)}, r"sample must be \[2\]"),
        ({"tokens": torch.zeros(2, 3, dtype=torch.int32)}, "tokens must be int64"),
    ],
)
def test_mismatched_shapes_are_refused(change: dict[str, torch.Tensor], message: str) -> None:
    parts = {
        "tokens": torch.zeros(2, 3, dtype=torch.int64),
        "labels": torch.zeros(2, 3, dtype=torch.int64),
        "positions": torch.arange(3).expand(2, 3),
        "sample": torch.arange(2),
    }
    with pytest.raises(ValueError, match=message):
        Batch(**(parts | change))


def test_batch_counts_scored_tokens_and_splits() -> None:
    batch = make([[0, 1], [0, 1], [0, PAD]], [[1, IGNORE], [2, 3], [IGNORE, IGNORE]])
    assert batch.num_scored == 3
    assert batch.scored.tolist() == [[True, False], [True, True], [False, False]]
    parts = batch.split(2)
    assert [len(part) for part in parts] == [2, 1]
    assert [part.num_scored for part in parts] == [3, 0]
    assert torch.equal(torch.cat([part.sample for part in parts]), batch.sample)


def test_of_builds_unpadded_unscored_sequences() -> None:
    batch = Batch.of(torch.tensor([[4, 5], [6, 7]]))
    assert batch.positions.tolist() == [[0, 1], [0, 1]]
    assert batch.num_scored == 0
    assert batch.in_order


def test_needs_no_numbers_on_meta() -> None:
    batch = Batch.of(torch.zeros(2, 3, dtype=torch.int64)).to("meta")
    assert batch.device.type == "meta"
    assert Batch(batch.tokens, batch.labels, batch.positions, batch.sample).in_order
