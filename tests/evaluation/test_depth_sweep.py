"""What the sweep counts, and what it keeps while it runs."""

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
    """Token by token, each from a run of its own."""
    tokens = prompt
    for _ in range(length):
        logits = model.run(Batch.of(tokens[None]), Loops.fixed(depth)).logits(depth)
        tokens = torch.cat([tokens, logits[0, -1].argmax()[None]])
    return tokens[len(prompt) :]


def test_exact_is_what_greedy_decoding_would_give() -> None:
    model, prompts, long = tiny(), batch(6, 5).tokens, 3
    rows = []
    for i, prompt in enumerate(prompts):
        # some rows hold what depth 2 or 4 would answer, some another token at the end
        answer = greedy_decoding(model, prompt, long, (2, 4)[i % 2])
        if i > 3:
            answer[-1] = (answer[-1] + 1) % model.vocabulary
        rows.append(torch.cat([prompt, answer]))
    whole = torch.stack(rows)
    labels = whole[:, 1:].clone()
    labels[:, : prompts.shape[1] - 1] = IGNORE
    data = Batch.of(whole[:, :-1].contiguous(), labels)
    with torch.no_grad():
        found = sweep(model, [data.rows(slice(0, 4)), data.rows(slice(4, 6))], [1, 2, 4], greedy=True).greedy
        assert found is not None
        assert found.sequences == 6
        for depth in (1, 2, 4):
            wanted = [greedy_decoding(model, prompt, long, depth) for prompt in prompts]
            exact = sum(torch.equal(row[-long:], answer) for row, answer in zip(whole, wanted, strict=True))
            assert found.exact[depth] == exact, depth
    assert found.exact[2] >= 2
    assert found.exact[4] >= 2
    assert found.right[4] >= 3 * found.exact[4]


@pytest.mark.parametrize("size", [2, 5])
def test_the_sums_of_examples_are_those_of_all(size: int) -> None:
    """Each example costs what it costs alone, in the order of their numbers, however they are batched."""
    model, data = tiny(), batch(5)
    data.labels[1, 3:] = IGNORE
    data.labels[3] = IGNORE
    shuffled = data.rows(torch.tensor([4, 1, 0, 3, 2]))
    found = sweep(model, shuffled.split(size), [1, 3], greedy=True, by_example=True)
    assert found.by_example is not None
    assert found.greedy is not None
    groups = ["a", "b", "a", "never", "b"]
    for depth in (1, 3):
        answers = found.by_example.answers(depth, groups)
        alone = [sweep(model, [data.rows(slice(i, i + 1))], [depth], greedy=True) for i in (0, 1, 2, 4)]
        assert [answer.nll for answer in answers] == pytest.approx([one.nll[depth] for one in alone], rel=1e-6)
        assert [answer.right for answer in answers] == [one.greedy.right[depth] for one in alone]  # type: ignore[union-attr]
        assert [answer.group for answer in answers] == ["a", "b", "a", "b"]
        assert sum(answer.tokens for answer in answers) == found.tokens
        assert sum(answer.right or 0 for answer in answers) == found.greedy.right[depth]
        assert sum(answer.exact or 0 for answer in answers) == found.greedy.exact[depth]


def test_a_sequence_without_a_label_is_no_answer() -> None:
    data = batch(2, 4)
    blank = torch.full_like(data.labels, IGNORE)
    found = sweep(tiny(), [Batch.of(data.tokens, blank)], [1, 3], greedy=True)
    assert found.greedy is not None
    assert (found.greedy.sequences, found.greedy.exact[1], found.greedy.right[3]) == (0, 0, 0)


def test_logits_that_are_not_finite_are_never_right() -> None:
    model = tiny()
    model.head.weight.data.fill_(float("nan"))
    data = batch(2, 4)
    zeros = Batch.of(data.tokens, torch.zeros_like(data.labels))  # argmax calls the first of several nans the largest
    found = sweep(model, [zeros], [1], greedy=True)
    assert found.greedy is not None
    assert (found.greedy.right[1], found.greedy.exact[1]) == (0, 0)


class _Most(Probe):
    """The most states that were kept at once."""

    def __init__(self) -> None:
        self.most, self.seen = 0, []

    def observe(self, t: Trajectory, depths: Any) -> None:
        self.seen += depths
        self.most = max(self.most, len(t._states))

    def result(self) -> ProbeResult:
        return ProbeResult({})


@pytest.mark.parametrize("parts", [{}, {"carry": "readout"}])
def test_a_hundred_depths_are_not_kept_at_once_and_cost_what_each_alone_does(parts: dict[str, Any]) -> None:
    model, data, probe = tiny(**parts), batch(2), _Most()
    depths = [1, 2, 3, *range(5, 100, 2)]
    together = sweep(model, [data], depths, probes=[probe])
    assert probe.seen == depths
    assert probe.most <= 10
    assert together.core_calls == 99
    for depth in (1, 5, 99):
        assert sweep(model, [data], [depth]).nll[depth] == pytest.approx(together.nll[depth], rel=1e-6)
    with torch.no_grad():
        assert together.nll[99] == pytest.approx(model.run(data, Loops.fixed(99)).nll([99]).sum().item(), rel=1e-6)
    assert data.tokens.shape == (2, LENGTH)
