"""Sums, counts and memory of the depth sweep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult
from loopkit.evaluation.depth_sweep import sweep
from loopkit.loop import IGNORE, Batch, Loops, Trajectory
from loopkit.model import LoopedModel
from tests.model.tiny import LENGTH, batch, tiny


def greedy_decoding(model: LoopedModel, prompt: Tensor, length: int, depth: int) -> Tensor:
    """Decode token by token, with a separate run for each."""
    tokens = prompt
    for _ in range(length):
        logits = model.run(Batch.of(tokens[None]), Loops.fixed(depth)).logits(depth)
        tokens = torch.cat([tokens, logits[0, -1].argmax()[None]])
    return tokens[len(prompt) :]


def test_exact_matches_greedy_decoding() -> None:
    model, prompts, long = tiny(), batch(6, 5).tokens, 3
    rows = []
    for i, prompt in enumerate(prompts):
        # rows contain the greedy answer of depth 2 or 4, the last ones with a wrong final token
        answer = greedy_decoding(model, prompt, long, (2, 4)[i % 2])
        if i > 3:
            answer[-1] = (answer[-1] + 1) % model.vocabulary
        rows.append(torch.cat([prompt, answer]))
    sequences = torch.stack(rows)
    labels = sequences[:, 1:].clone()
    labels[:, : prompts.shape[1] - 1] = IGNORE
    data = Batch.of(sequences[:, :-1].contiguous(), labels)
    with torch.no_grad():
        sums = sweep(model, [data.rows(slice(0, 4)), data.rows(slice(4, 6))], [1, 2, 4], greedy=True).greedy
        assert sums is not None
        assert sums.sequences == 6
        for depth in (1, 2, 4):
            expected = [greedy_decoding(model, prompt, long, depth) for prompt in prompts]
            exact = sum(torch.equal(row[-long:], answer) for row, answer in zip(sequences, expected, strict=True))
            assert sums.exact[depth] == exact, depth
    assert sums.exact[2] >= 2
    assert sums.exact[4] >= 2
    assert sums.right[4] >= 3 * sums.exact[4]


@pytest.mark.parametrize("size", [2, 5])
def test_example_sums_add_up(size: int) -> None:
    """The loss of each example, ordered by number, does not depend on the batches."""
    model, data = tiny(), batch(5)
    data.labels[1, 3:] = IGNORE
    data.labels[3] = IGNORE
    shuffled = data.rows(torch.tensor([4, 1, 0, 3, 2]))
    sums = sweep(model, shuffled.split(size), [1, 3], greedy=True, by_example=True)
    assert sums.by_example is not None
    assert sums.greedy is not None
    groups = ["a", "b", "a", "never", "b"]
    for depth in (1, 3):
        answers = sums.by_example.answers(depth, groups)
        separate = [sweep(model, [data.rows(slice(i, i + 1))], [depth], greedy=True) for i in (0, 1, 2, 4)]
        assert [answer.nll for answer in answers] == pytest.approx([one.nll[depth] for one in separate], rel=1e-6)
        assert [answer.right for answer in answers] == [one.greedy.right[depth] for one in separate]  # type: ignore[union-attr]
        assert [answer.group for answer in answers] == ["a", "b", "a", "b"]
        assert sum(answer.tokens for answer in answers) == sums.tokens
        assert sum(answer.right or 0 for answer in answers) == sums.greedy.right[depth]
        assert sum(answer.exact or 0 for answer in answers) == sums.greedy.exact[depth]


def test_sequence_without_labels_is_not_counted() -> None:
    data = batch(2, 4)
    blank = torch.full_like(data.labels, IGNORE)
    sums = sweep(tiny(), [Batch.of(data.tokens, blank)], [1, 3], greedy=True)
    assert sums.greedy is not None
    assert (sums.greedy.sequences, sums.greedy.exact[1], sums.greedy.right[3]) == (0, 0, 0)


def test_nan_logits_are_never_correct() -> None:
    model = tiny()
    model.head.weight.data.fill_(float("nan"))
    data = batch(2, 4)
    zeros = Batch.of(data.tokens, torch.zeros_like(data.labels))  # argmax calls the first of several nans the largest
    sums = sweep(model, [zeros], [1], greedy=True)
    assert sums.greedy is not None
    assert (sums.greedy.right[1], sums.greedy.exact[1]) == (0, 0)


class _MaxStates(Probe):
    """The maximum number of states in memory."""

    def __init__(self) -> None:
        self.max_states, self.seen = 0, []

    def observe(self, t: Trajectory, depths: Any) -> None:
        self.seen += depths
        self.max_states = max(self.max_states, len(t._states))

    def result(self) -> ProbeResult:
        return ProbeResult({})


@pytest.mark.parametrize("parts", [{}, {"carry": "readout"}])
def test_many_depths_need_little_memory(parts: dict[str, Any]) -> None:
    model, data, probe = tiny(**parts), batch(2), _MaxStates()
    depths = [1, 2, 3, *range(5, 100, 2)]
    swept = sweep(model, [data], depths, probes=[probe])
    assert probe.seen == depths
    assert probe.max_states <= 10
    assert swept.core_calls == 99
    for depth in (1, 5, 99):
        assert sweep(model, [data], [depth]).nll[depth] == pytest.approx(swept.nll[depth], rel=1e-6)
    with torch.no_grad():
        assert swept.nll[99] == pytest.approx(model.run(data, Loops.fixed(99)).nll([99]).sum().item(), rel=1e-6)
    assert data.tokens.shape == (2, LENGTH)
