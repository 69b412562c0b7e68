"""Records of one loop are readable in the next."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from loopkit.components.core import Stack
from loopkit.loop import Loops, Step
from loopkit.model import LoopedModel
from tests.model.tiny import batch, tiny

Seen = list[tuple[int, list[float] | None]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[LoopedModel, Seen]:
    """A model whose core counts the loops of each sequence, and the records it received, by loop."""
    seen: Seen = []
    forward = Stack.forward

    def counting(self: Stack, u: Tensor, step: Step) -> Tensor:
        before = step.earlier.get("count")
        seen.append((step.k, None if before is None else before.tolist()))
        step.records["count"] = u.new_ones(u.shape[0]) if before is None else before + 1
        return forward(self, u, step)

    monkeypatch.setattr(Stack, "forward", counting)
    return tiny(), seen


def test_loop_reads_records_of_previous_loop(counted: tuple[LoopedModel, Seen]) -> None:
    model, seen = counted
    t = model.run(batch(), Loops.fixed(3))
    assert seen == [(1, None), (2, [1, 1, 1]), (3, [2, 2, 2])]
    assert [record["count"].tolist() for record in t.records] == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]


def test_late_sequence_reads_zero_records(counted: tuple[LoopedModel, Seen]) -> None:
    model, seen = counted
    model.run(batch(), Loops(4, 4, torch.tensor([4, 1, 2])))
    assert seen == [(1, None), (2, [1]), (3, [2, 0]), (4, [3, 0, 1])]


def test_records_follow_remaining_sequences(counted: tuple[LoopedModel, Seen]) -> None:
    model, seen = counted
    model.run(batch(), Loops.fixed(3), after_loop=lambda t, k: torch.tensor([k == 2, k == 1, False]))
    assert seen == [(1, None), (2, [1, 1]), (3, [2])]


def test_extra_step_reads_previous_records(counted: tuple[LoopedModel, Seen]) -> None:
    model, seen = counted
    t = model.run(batch(), Loops.fixed(3))
    t.step(t.carried(3))
    t.step(t.carried(3), k=4)
    assert seen[3:] == [(3, [2, 2, 2]), (4, [3, 3, 3])]
    assert len(t.records) == 3


def test_recomputation_reads_and_records_once(counted: tuple[LoopedModel, Seen]) -> None:
    model, seen = counted
    model.checkpointing = True
    t = model.train().run(batch(), Loops.fixed(3))
    t.nll([3]).sum().backward()
    first, again = seen[:3], sorted(seen[3:], key=lambda item: item[0])
    assert first == again
    assert [record["count"].tolist() for record in t.records] == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]
