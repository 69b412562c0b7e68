"""Decoding with a cache gives what recomputation gives, and a batch gives what its prompts give one at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.attention import CausalAttention
from loopkit.inference import GREEDY, POLICIES, Sampling, generate, uncacheable_components
from loopkit.inference.prompts import left_pad, sample_key
from loopkit.loop import FullCache, Loops
from loopkit.model import LoopedModel, build_model
from loopkit.recipe.format import HeadConfig, StageConfig
from tests.model.tiny import VOCABULARY, section, tiny

GROUPED = {"type": "transformer", "attention": {"heads": 4, "kv_heads": 2}, "mlp": {"ratio": 2}}
MODELS: dict[str, dict[str, Any]] = {
    "ouro": {
        "block": {"type": "transformer", "attention": {"heads": 2}, "mlp": {"ratio": 2}, "placement": "pre_sandwich"},
        "carry": "readout",
        "gate": "linear",
        "head": HeadConfig(tied=False),
    },
    "huginn": {"block": GROUPED, "prelude": 1, "coda": 1, "start": "normal", "injection": "concat"},
    "coda_in_every_loop": {"block": GROUPED, "coda": StageConfig(layers=2), "carry": "readout", "injection": "add"},
    "learned": {"position": "learned"},
    "no_position": {"position": "none"},
    "uses_total": {"readout": "final_only"},
    "value_embeddings": {
        "block": GROUPED | {"attention": {"heads": 4, "kv_heads": 2, "value_embeddings": "all", "value_gate": 5}},
        "prelude": 1,
        "coda": 1,
        "injection": "add",
    },
}
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5, 3, 5], [8, 9, 7, 9]]
DRAWN = Sampling(temperature=1.0, top_p=0.9, seed=7)


def any_length(**parts: Any) -> LoopedModel:
    """A small model for long completions."""
    chosen = section(**({"init": {"type": "normal", "std": 0.2}} | parts))
    return build_model(chosen, vocabulary=VOCABULARY, max_length=64, max_loops=4, seed=0).eval()


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("parts", MODELS.values(), ids=MODELS)
def test_batch_equals_separate_prompts(parts: dict[str, Any], depth: int, sampling: Sampling) -> None:
    model = any_length(**parts)
    options: dict[str, Any] = {"depth": depth, "max_tokens": 8, "sampling": sampling}
    batch = generate(model, PROMPTS, **options)
    assert batch == [generate(model, [prompt], **options)[0] for prompt in PROMPTS]
    assert batch == generate(model, PROMPTS, cache=None, **options)
    assert batch[::-1] == generate(model, PROMPTS[::-1], **options)
    assert all(len(item.tokens) == 8 and not item.finished for item in batch)


@pytest.mark.parametrize("parts", MODELS.values(), ids=MODELS)
@torch.no_grad()
def test_cached_logits_equal_recomputation(parts: dict[str, Any]) -> None:
    model, loops, seen = any_length(**parts).double(), Loops.fixed(3), []
    handle = model.head.register_forward_hook(lambda part, arguments, logits: seen.append(logits))
    generated = generate(model, PROMPTS, depth=3, max_tokens=8)
    handle.remove()
    assert len(seen) == 8
    for row, (prompt, new) in enumerate(zip(PROMPTS, generated, strict=True)):
        alone = left_pad([[*prompt, *new.tokens[:-1]]], [sample_key(prompt)], "cpu")
        logits = model.run(alone, loops).logits(3)[0, len(prompt) - 1 :]
        torch.testing.assert_close(torch.stack([at[row] for at in seen]), logits, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("length", "depth"), [(1, 1), (7, 4), (33, 2), (7, 8)])
def test_cached_generation_equals_recomputation(length: int, depth: int) -> None:
    model = build_model(section(**MODELS["ouro"]), vocabulary=VOCABULARY, max_length=64, max_loops=8, seed=3).eval()
    prompt = torch.randint(0, VOCABULARY, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    options: dict[str, Any] = {"depth": depth, "max_tokens": 32}
    assert generate(model, [prompt], **options) == generate(model, [prompt], cache=None, **options)


def test_finished_sequence_leaves_the_batch() -> None:
    model = any_length()
    free = generate(model, PROMPTS, depth=2, max_tokens=12)
    end = free[2].tokens[4]
    rows: list[int] = []
    model.core.register_forward_pre_hook(lambda part, arguments: rows.append(len(arguments[0])))
    ended: list[int] = []
    got = generate(model, PROMPTS, depth=2, max_tokens=[12, 2, 12, 12], eos={end}, done=lambda n, _: ended.append(n))
    for number, (item, unlimited, most) in enumerate(zip(got, free, [12, 2, 12, 12], strict=True)):
        tokens = list(unlimited.tokens[:most])
        finished = end in tokens
        tokens = tokens[: tokens.index(end) + 1] if finished else tokens
        assert (item.tokens, item.finished) == (tuple(tokens), finished), number
    assert sum(rows) == 2 * sum(len(item.tokens) for item in got), "finished sequences are not computed"
    assert sorted(ended) == [0, 1, 2, 3]
    assert ended == sorted(range(4), key=lambda n: (len(got[n].tokens), n)), "reported as soon as a sequence ends"


def test_callback_can_end_a_sequence() -> None:
    seen: list[tuple[int, int]] = []

    def watch(number: int, tokens: Any) -> bool:
        seen.append((number, len(tokens)))
        return number == 1 and len(tokens) == 3

    got = generate(any_length(), PROMPTS[:2], depth=2, max_tokens=5, watch=watch)
    assert [(len(item.tokens), item.finished) for item in got] == [(5, False), (3, True)]
    assert len(seen) == len(set(seen)) == 8


def test_positions_limit_prompt_and_completion() -> None:
    model = tiny(position="learned")  # 12 positions
    results = generate(model, [[1] * 9, [1] * 3], depth=2, max_tokens=100)
    assert [len(item.tokens) for item in results] == [3, 9]
    assert not any(item.finished for item in results)
    with pytest.raises(ValueError, match=r"prompt 2 has 12 tokens, and the model has 12 positions"):
        generate(model, [[1], [1] * 12], depth=2, max_tokens=1)
    assert len(generate(tiny(position="rope"), [[1] * 20], depth=2, max_tokens=3)[0].tokens) == 3


def test_invalid_prompts_and_options_are_rejected() -> None:
    model = tiny()
    for prompts, options, message in (
        ([[1], []], {}, "prompt 2 has 0 tokens"),
        ([[1, VOCABULARY]], {}, "outside of the vocabulary, 0 to 22"),
        ([[-1]], {}, "outside of the vocabulary"),
        ([[1]], {"depth": 0}, "depth must be at least 1"),
        ([[1]], {"max_tokens": 0}, "max_tokens must be at least 1"),
        ([[1]], {"cache": "some"}, "unknown cache policy 'some'; policies: full"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(model, prompts, **({"depth": 2, "max_tokens": 1} | options))
    with pytest.raises(ValueError, match="training mode"):
        generate(tiny().train(), [[1]], depth=2, max_tokens=1)
    assert generate(model, [], depth=2, max_tokens=1) == []


def test_random_start_depends_on_seed_and_sample() -> None:
    model = any_length(**MODELS["huginn"])
    options: dict[str, Any] = {"depth": 2, "max_tokens": 16}
    one = generate(model, [[3, 1]], **options, sampling=DRAWN)
    assert one == generate(model, [[3, 1]], **options, sampling=DRAWN)
    other = Sampling(temperature=1.0, top_p=0.9, seed=8)
    assert one != generate(model, [[3, 1]], **options, sampling=other)
    several = generate(model, [[3, 1]] * 4, **options, sampling=DRAWN, sample=[1, 2, 3, 1])
    assert several[0] == several[3]
    assert len({item.tokens for item in several}) == 3


def test_uncacheable_component_is_recomputed() -> None:
    class Whole(CausalAttention):
        """An attention without cache, which needs all tokens at once."""

        def forward(self, x: Tensor, step: Any) -> Tensor:
            assert step.cache is None
            return super().forward(x, step)

    registration = CausalAttention.registration  # type: ignore[attr-defined]
    Whole.registration = type(registration)("attention", "whole", {"provides": {"double_backward"}})  # type: ignore[attr-defined]
    model, expected = any_length(), generate(any_length(), PROMPTS, depth=2, max_tokens=6)
    assert uncacheable_components(model) == []
    for part in model.modules():
        if isinstance(part, CausalAttention):
            part.__class__ = Whole
    assert uncacheable_components(model) == ["attention 'whole'"]
    assert generate(model, PROMPTS, depth=2, max_tokens=6) == expected


def test_cached_token_costs_constant_work() -> None:
    model, lengths = any_length(), []
    model.core.register_forward_pre_hook(lambda part, arguments: lengths.append(arguments[0].shape[1]))
    generate(model, [[1] * 5], depth=2, max_tokens=4)
    assert lengths == [5, 5, 1, 1, 1, 1, 1, 1]
    assert POLICIES["full"] is FullCache
