"""Generation with early exit: per token, and once per sequence."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.exit import Depth, Entropy, Exit, Kl, LogitMargin, MaxProb
from loopkit.errors import UserError
from loopkit.inference import POLICIES, ExitRule, Generated, generate
from loopkit.loop import FullCache
from loopkit.loop.cache import Slot
from loopkit.model import LoopedModel
from tests.inference.test_generate import DRAWN, MODELS, PROMPTS, any_length

LOOPS, NEW = 4, 12
EXITS: dict[str, ExitRule] = {
    "margin": ExitRule(LogitMargin(threshold=0.35)),
    "max_prob": ExitRule(MaxProb(threshold=0.2)),
    "entropy": ExitRule(Entropy(threshold=-2.9)),
    "kl": ExitRule(Kl(), threshold=-1e-2),
    "once": ExitRule(LogitMargin(threshold=0.35), level="sequence"),
}


def exiting(model: LoopedModel, rule: ExitRule, prompts: list[list[int]] = PROMPTS, **options: Any) -> list[Generated]:
    return generate(model, prompts, depth=LOOPS, max_tokens=NEW, exit=rule, **options)


class Poisoned(FullCache):
    """A cache whose unwritten memory is NaN."""

    def extend(
        self, slot: Slot, keys: Tensor, values: Tensor, positions: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        extended = super().extend(slot, keys, values, positions, rows)
        tokens = self._slots[slot]
        for tensor in (tokens.keys, tokens.values):
            tensor[:, :, tokens.length :] = math.nan
        return extended


@pytest.mark.parametrize("rule", EXITS.values(), ids=EXITS)
@pytest.mark.parametrize("parts", MODELS.values(), ids=MODELS)
def test_batch_equals_separate_prompts(parts: dict[str, Any], rule: ExitRule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences at different loops do not affect one another, and no unwritten slot is read; fp64, because a score that
    rounding moves across the threshold changes the depth."""
    model = any_length(**parts).double()
    batch = exiting(model, rule)
    assert batch == [exiting(model, rule, [prompt])[0] for prompt in PROMPTS]
    monkeypatch.setitem(POLICIES, "poisoned", Poisoned)
    assert exiting(model, rule, cache="poisoned") == batch


def test_exits_stop_tokens_at_several_loops() -> None:
    """The rules of these tests do stop tokens early, so that the tests above compare something."""
    for name, rule in EXITS.items():
        depths = [
            depth for parts in MODELS.values() for item in exiting(any_length(**parts), rule) for depth in item.depths
        ]
        assert len(set(depths)) > 1, name
        assert set(depths) <= set(range(1, LOOPS + 1)), name


@pytest.mark.parametrize("parts", MODELS.values(), ids=MODELS)
def test_infinite_threshold_equals_full_depth(parts: dict[str, Any]) -> None:
    model = any_length(**parts)
    full = generate(model, PROMPTS, depth=LOOPS, max_tokens=NEW, sampling=DRAWN)
    for level in ("token", "sequence"):
        rule = ExitRule(LogitMargin(), level, math.inf)  # type: ignore[arg-type]
        assert exiting(model, rule, sampling=DRAWN) == full


@pytest.mark.parametrize("parts", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("depth", [1, 3])
def test_fixed_exit_of_a_sequence_equals_fixed_depth(parts: dict[str, Any], depth: int) -> None:
    if parts.get("readout") == "final_only":
        pytest.skip("its state depends on the number of loops requested")
    model = any_length(**parts)
    fixed = generate(model, PROMPTS, depth=depth, max_tokens=NEW)
    assert exiting(model, ExitRule(Depth(loops=depth), "sequence")) == fixed


def test_prompt_runs_all_loops_at_token_level() -> None:
    results = exiting(any_length(), ExitRule(Depth(loops=1)))
    assert all(item.depths == (LOOPS, *(1,) * (NEW - 1)) for item in results)
    assert results[0].mean_depth == pytest.approx((LOOPS + NEW - 1) / NEW)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_core_computes_only_the_loops_that_are_reported(level: Any) -> None:
    model, rows = any_length(), []
    handle = model.core.register_forward_hook(lambda module, arguments, output: rows.append(output.shape[0]))
    results = exiting(model, ExitRule(LogitMargin(threshold=0.35), level))
    handle.remove()
    assert sum(rows) == sum(sum(item.depths) for item in results) < LOOPS * NEW * len(PROMPTS)


def test_later_tokens_do_not_attend_to_skipped_loops() -> None:
    """Keys and values of a token are in the slots of the loops that it ran, and masked in others."""
    caches: list[FullCache] = []

    def build(batch: int, room: int) -> FullCache:
        caches.append(FullCache(batch, room))
        return caches[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICIES, "watched", build)
        (result,) = exiting(any_length(), ExitRule(LogitMargin(threshold=0.35)), [[3, 1, 4]], cache="watched")
    assert len(set(result.depths)) > 1
    for k in range(1, LOOPS + 1):
        expected = 3 + sum(depth >= k for depth in result.depths[1:])  # the last new token has not run yet
        for positions in caches[0].positions(k):
            assert positions.shape[1] == expected


def test_nan_scores_never_stop() -> None:
    class NotANumber(Exit):
        threshold = 0.0

        def score(self, t: Any, k: int) -> Tensor:
            return torch.full(t.batch.tokens.shape, math.nan)

    assert {depth for item in exiting(any_length(), ExitRule(NotANumber())) for depth in item.depths} == {LOOPS}


def test_exit_without_cache_is_rejected() -> None:
    with pytest.raises(
        UserError, match="early exit needs a key-value cache, but the cache is off; generate at full depth"
    ):
        exiting(any_length(), EXITS["margin"], cache=None)
