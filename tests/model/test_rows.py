"""The sequences that each loop computes."""

from __future__ import annotations

import pytest
import torch

from loopkit.loop import Loops
from loopkit.model.rows import Rows

CPU = torch.device("cpu")


def at(rows: Rows, k: int) -> list[int] | None:
    index = rows.at(k)
    return None if index is None else index.tolist()


def test_all_sequences_run_by_default() -> None:
    rows = Rows(Loops.fixed(3), 2, CPU)
    assert at(rows, 1) is None
    new = torch.ones(2, 1)
    assert rows.merge(torch.zeros(2, 1), new, 1) is new
    assert rows.depth(3) is None


def test_late_starts() -> None:
    rows = Rows(Loops(4, 4, torch.tensor([1, 3, 2])), 3, CPU)
    assert [at(rows, k) for k in (1, 2, 3, 4)] == [[0], [1], [1, 2], None]
    old, new = torch.zeros(3, 1), torch.ones(3, 1)
    # no sequence has started at loop 1: the state of the first is discarded
    assert rows.merge(old, new, 1).flatten().tolist() == [0, 0, 0]
    assert rows.merge(old, new, 3).flatten().tolist() == [0, 1, 1]
    assert rows.depth(4).tolist() == [1, 3, 2]


def test_only_waiting_sequences_restart() -> None:
    rows = Rows(Loops(4, 2, torch.tensor([1, 3, 2])), 3, CPU)
    got = rows.restore(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[7.0], [8.0], [9.0]]), 2)
    assert got.flatten().tolist() == [7, 2, 9]


def test_early_stops() -> None:
    rows = Rows(Loops.fixed(5), 3, CPU)
    assert not rows.finish(torch.tensor([False, True, False]), 1)
    assert at(rows, 2) == [0, 2]
    assert not rows.finish(torch.tensor([True, False, False]), 2)
    assert at(rows, 3) == [2]
    assert rows.finish(torch.tensor([False, False, True]), 3)
    assert rows.depth(3).tolist() == [2, 1, 3]
    with pytest.raises(ValueError, match="returned 2 values for 3 sequences"):
        Rows(Loops.fixed(2), 3, CPU).finish(torch.tensor([True, False]), 1)
