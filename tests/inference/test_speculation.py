"""Self-speculative decoding: the tokens of full depth, or their distribution, with fewer passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from loopkit.components.exit import LogitMargin
from loopkit.errors import UserError
from loopkit.inference import POLICIES, Draft, ExitRule, Sampling, generate
from tests.inference.test_generate import MODELS, PROMPTS, any_length
from tests.inference.test_token_exit import Poisoned

LOOPS, NEW = 4, 12


@pytest.mark.parametrize("draft", [Draft(1), Draft(2, tokens=1), Draft(3, tokens=7)], ids=str)
@pytest.mark.parametrize("parts", MODELS.values(), ids=MODELS)
def test_greedy_tokens_equal_full_depth(parts: dict[str, Any], draft: Draft, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp64, because rounding may decide between equal logits; a batch accepts different numbers of tokens."""
    model = any_length(**parts).double()
    monkeypatch.setitem(POLICIES, "poisoned", Poisoned)
    full = generate(model, PROMPTS, depth=LOOPS, max_tokens=NEW)
    for policy in ("full", "poisoned"):
        results = generate(model, PROMPTS, depth=LOOPS, max_tokens=NEW, draft=draft, cache=policy)
        assert [item.tokens for item in results] == [item.tokens for item in full]
    assert all(item.num_drafted <= NEW for item in results)


def test_some_drafts_are_accepted_and_some_rejected() -> None:
    """The models of these tests do both, so that the test above compares something."""
    results = [
        item
        for parts in MODELS.values()
        for item in generate(any_length(**parts), PROMPTS, depth=LOOPS, max_tokens=NEW, draft=Draft(1))
    ]
    accepted = sum(item.num_drafted for item in results)
    assert 0.1 < accepted / sum(len(item.tokens) for item in results) < 0.9


def test_drafts_save_passes_of_full_depth() -> None:
    """A draft of a model whose loops change nothing is always accepted."""
    model, rows = any_length(), []
    for name, parameter in model.core.named_parameters():
        if name.endswith("out.weight"):
            torch.nn.init.zeros_(parameter)
    handle = model.core.register_forward_hook(lambda module, arguments, output: rows.append(output.shape[1]))
    (result,) = generate(model, [[3, 1, 4]], depth=LOOPS, max_tokens=NEW, draft=Draft(1, tokens=3))
    handle.remove()
    # the prompt, then drafts of 3, 4 and 5 tokens, each verified in one pass with the newest token
    assert rows == [3] * LOOPS + [1] * 3 + [4] * LOOPS + [1] * 4 + [5] * LOOPS + [1] * 5 + [6] * LOOPS
    assert result.num_drafted == 3 + 4 + 2


def test_sampled_tokens_have_the_distribution_of_full_depth() -> None:
    """Chi-square over the pairs of the second and third new token, which are drafted."""
    model, count = any_length(), 4000
    sampling = Sampling(temperature=0.6, top_k=4, seed=5)
    draft = generate(
        model, [[3, 1]] * count, depth=3, max_tokens=3, sampling=sampling, sample=range(count), draft=Draft(1, tokens=2)
    )
    plain = generate(model, [[3, 1]] * count, depth=3, max_tokens=3, sampling=sampling, sample=range(count, 2 * count))
    assert 0 < sum(item.num_drafted for item in draft) < 2 * count
    observed, expected = (Counter(item.tokens for item in results) for results in (draft, plain))
    frequent = [tokens for tokens, number in (observed + expected).items() if number >= 40]
    assert len(frequent) > 10
    statistic = sum((observed[key] - expected[key]) ** 2 / (observed[key] + expected[key]) for key in frequent)
    freedom = len(frequent)
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


def test_end_and_budget_cut_accepted_drafts() -> None:
    model = any_length()
    full = generate(model, PROMPTS, depth=LOOPS, max_tokens=NEW)
    eos = full[0].tokens[5]
    options: dict[str, Any] = {"depth": LOOPS, "max_tokens": [NEW, 3, 1, 7], "eos": [eos]}
    plain = generate(model, PROMPTS, **options)
    draft = generate(model, PROMPTS, draft=Draft(2, tokens=5), **options)
    assert [(item.tokens, item.finished) for item in draft] == [(item.tokens, item.finished) for item in plain]


def test_drafts_stop_at_the_last_position() -> None:
    model = any_length(position="learned")
    options: dict[str, Any] = {"depth": LOOPS, "max_tokens": 100}
    plain = generate(model, PROMPTS, **options)
    draft = generate(model, PROMPTS, draft=Draft(2, tokens=5), **options)
    assert [item.tokens for item in draft] == [item.tokens for item in plain]
    assert len(plain[0].tokens) == 64 - len(PROMPTS[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft": Draft(4)}, "a draft for depth 4 has depth 1 to 3, not 4"),
        ({"draft": Draft(0)}, "a draft for depth 4 has depth 1 to 3, not 0"),
        ({"draft": Draft(1, tokens=0)}, "a draft needs at least one token, not 0"),
        ({"draft": Draft(1), "cache": None}, "drafting needs a key-value cache, but the cache is off"),
        ({"draft": Draft(1), "exit": ExitRule(LogitMargin())}, "choose early exit or drafting, not both"),
    ],
)
def test_invalid_drafts_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(any_length(), PROMPTS, depth=LOOPS, max_tokens=NEW, **options)
