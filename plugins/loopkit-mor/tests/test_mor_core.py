"""Routing: against a loop over tokens, and in every use of a core."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from mor_models import LENGTH, LOOPS, VOCABULARY, build, by_tokens, tokens
from torch import Tensor
from torch.func import jvp

from loopkit.loop import PAD, Batch, FullCache, Loops, Step, Trajectory
from loopkit.model import LoopedModel, load_weights, save_weights

BOTH = pytest.mark.parametrize("make", [build, by_tokens], ids=["expert_choice", "token_choice"])
Make = Callable[..., LoopedModel]


@pytest.fixture
def batch() -> Batch:
    return tokens()


def logits(model: LoopedModel, batch: Batch, loops: int = LOOPS, **options: object) -> Tensor:
    t = model.run(batch, Loops.fixed(loops), **options)  # type: ignore[arg-type]
    return torch.stack([t.logits(k) for k in range(1, loops + 1)])


def through_blocks(model: LoopedModel, x: Tensor, row: int, chosen: list[int], step: Step) -> Tensor:
    """Apply the blocks to some tokens of one sequence, ``[M, D]``."""
    noise = replace(step.noise, sample=step.noise.sample[row : row + 1], positions=step.positions[row, chosen][None])
    part = x[row, chosen][None]
    single = replace(step, e=part, c=part, positions=step.positions[row, chosen][None], noise=noise)
    for block in model.core.blocks:
        part = block(part, single)
    return part[0]


def expert_choice_reference(model: LoopedModel, t: Trajectory, keep: list[float], largest: bool) -> list[Tensor]:
    router, states = model.core.router, [t.state(0)]
    active = [list(range(LENGTH)) for _ in range(len(t.batch))]
    for k in range(1, LOOPS + 1):
        u, s = states[-1], states[-1].clone()
        for row in range(len(t.batch)):
            z = {i: float(router.weight[k - 1] @ u[row, i] + router.bias[k - 1]) for i in active[row]}
            if keep[k - 1] < 1 and largest:
                best = sorted(z, key=lambda i: -z[i])[: math.ceil(keep[k - 1] * LENGTH)]
                active[row] = sorted(best)
            elif keep[k - 1] < 1:
                active[row] = [i for i in active[row] if z[i] > 0]
            if active[row]:
                new = through_blocks(model, u, row, active[row], t.context(k, u))
                for i, value in zip(active[row], new, strict=True):
                    s[row, i] = u[row, i] + 0.5 / (1 + math.exp(-z[i])) * value
        states.append(s)
    return states


@torch.no_grad()
@pytest.mark.parametrize("training", [True, False])
def test_expert_choice_equals_reference(batch: Batch, training: bool) -> None:
    """Training takes the largest weights, evaluation those above one half; other tokens do not change."""
    model = build().double().train(training)
    t = model.run(batch, Loops.fixed(LOOPS))
    expected = expert_choice_reference(model, t, [1.0, 0.5, 0.25], largest=training)
    for k in range(LOOPS + 1):
        torch.testing.assert_close(t.state(k), expected[k], rtol=1e-9, atol=1e-9)
    counts = torch.stack([record["router_chosen"].sum(1) for record in t.records])
    if training:
        assert counts.T.tolist() == [[12, 6, 3]] * 3
    else:
        assert len(set(counts[1].tolist())) > 1  # sequences of unequal numbers were packed together


@torch.no_grad()
def test_token_choice_equals_reference(batch: Batch) -> None:
    model = by_tokens().double()
    t = model.run(batch, Loops.fixed(LOOPS))
    p = (t.e @ model.core.router.weight.T).softmax(-1)
    depth = p.argmax(-1) + 1
    assert set(depth.flatten().tolist()) == {1, 2, 3}
    state = t.state(0)
    for k in range(1, LOOPS + 1):
        new = state.clone()
        for row in range(len(batch)):
            chosen = [i for i in range(LENGTH) if depth[row, i] >= k]
            for i, value in zip(chosen, through_blocks(model, state, row, chosen, t.context(k, state)), strict=True):
                last = depth[row, i] == k
                new[row, i] = t.e[row, i] + 0.5 * p[row, i, k - 1] * value if last else value
        torch.testing.assert_close(t.state(k), new, rtol=1e-9, atol=1e-9)
        state = new


@torch.no_grad()
@BOTH
def test_tokens_that_left_are_not_computed(batch: Batch, make: Make) -> None:
    model, seen = make(), []
    model.core.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[1].positions < PAD))
    t = model.run(batch, Loops.fixed(LOOPS))
    for k, real in enumerate(seen, start=1):
        moved = (t.state(k) != t.state(k - 1)).any(-1)
        assert (real.sum(1) >= moved.sum(1)).all()
        assert k == 1 or real.sum(1).tolist() == moved.sum(1).tolist()
        assert real.shape[1] == int(real.sum(1).max())  # no more slots than the longest sequence needs
    assert seen[2].sum() < seen[1].sum() < 3 * LENGTH


@torch.no_grad()
def test_blocks_are_skipped_without_tokens(batch: Batch) -> None:
    model, calls = build(), []
    model.core.router.bias[1:] = -1e3
    model.core.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    t = model.run(batch, Loops.fixed(LOOPS))
    assert len(calls) == 1
    assert torch.equal(t.state(LOOPS), t.state(1))
    model.train().run(batch, Loops.fixed(LOOPS))
    assert len(calls) == 1 + LOOPS  # in training every rank makes the same calls


@torch.no_grad()
@BOTH
def test_only_expert_choice_training_looks_ahead(batch: Batch, make: Make) -> None:
    model, later = make(), batch.tokens.clone()
    later[:, 7:] = (later[:, 7:] + 1) % VOCABULARY
    changed = replace(batch, tokens=later)
    torch.testing.assert_close(logits(model, changed)[:, :, :7], logits(model, batch)[:, :, :7], rtol=1e-5, atol=1e-5)
    model.train()
    moved = (logits(model, changed)[:, :, :7] - logits(model, batch)[:, :, :7]).abs().max()
    assert (moved > 0.05) == (make is build)


@torch.no_grad()
@BOTH
@pytest.mark.parametrize("cuts", [[0, 5, 6, LENGTH], list(range(LENGTH + 1))])
def test_cached_decoding_equals_full_pass(batch: Batch, make: Make, cuts: list[int]) -> None:
    """Also token by token, where a loop without tokens is skipped."""
    model, cache, parts = make(), FullCache(len(batch)), []
    for first, last in pairwise(cuts):
        part = Batch(*(value[:, first:last] for value in (batch.tokens, batch.labels, batch.positions)), batch.sample)
        parts.append(model.run(part, Loops.fixed(LOOPS), cache=cache).logits(LOOPS))
    torch.testing.assert_close(torch.cat(parts, dim=1), logits(model, batch)[-1], rtol=1e-4, atol=1e-4)
    computed = sum(positions.lt(PAD).sum() for k in (2, 3) for positions in cache.positions(k))
    assert computed < 2 * 3 * LENGTH  # tokens that left have no keys


@torch.no_grad()
@BOTH
@pytest.mark.parametrize("training", [False, True])
def test_padding_and_batch_do_not_change_logits(batch: Batch, make: Make, training: bool) -> None:
    model, pad = make().train(training), 4
    together = logits(model, batch)
    for row, single in enumerate(batch.split(1)):
        torch.testing.assert_close(logits(model, single), together[:, row : row + 1], rtol=1e-5, atol=1e-5)
    fill = torch.zeros(3, pad, dtype=torch.int64)
    for left in (True, False):
        order = (fill, batch.tokens) if left else (batch.tokens, fill)
        positions = (fill + PAD, batch.positions) if left else (batch.positions, fill + PAD)
        padded = Batch(torch.cat(order, 1), torch.cat(order, 1), torch.cat(positions, 1), batch.sample)
        real = slice(pad, None) if left else slice(None, LENGTH)
        torch.testing.assert_close(logits(model, padded)[:, :, real], together, rtol=1e-5, atol=1e-5)


@BOTH
def test_gradients_are_equal_with_checkpointing(batch: Batch, make: Make) -> None:
    model, gradients = make().train(), []
    for model.checkpointing in (False, True):
        model.zero_grad()
        t = model.run(batch, Loops.fixed(LOOPS))
        t.nll([LOOPS]).mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    idle = [name for name, grad in gradients[0].items() if grad is None or not grad.abs().sum() > 0]
    assert idle == []
    torch.testing.assert_close(gradients[1], gradients[0])


@torch.no_grad()
@BOTH
def test_one_pass_serves_every_depth(batch: Batch, make: Make) -> None:
    model = make()
    assert model.depth_free
    t = model.run(batch, Loops.fixed(LOOPS))
    for k in range(1, LOOPS + 1):
        torch.testing.assert_close(t.logits(k, at=k), model.run(batch, Loops.fixed(k)).logits(k))


@torch.no_grad()
def test_sequence_that_starts_late_is_candidate(batch: Batch) -> None:
    model = build()
    t = model.run(batch, Loops(LOOPS, LOOPS, torch.tensor([3, 1, 2])))
    assert [sorted(record) for record in t.records] == [sorted(t.records[0])] * LOOPS
    first = t.records[2]["router_candidates"]
    assert first[1].all()
    assert torch.equal(first[0], t.records[1]["router_chosen"][0])


@BOTH
def test_double_backward_equals_forward_mode(batch: Batch, make: Make) -> None:
    model = make().double()
    t = model.run(batch, Loops.fixed(LOOPS))
    c = t.carried(1).detach().requires_grad_()
    v = torch.randn(c.shape, dtype=c.dtype, generator=torch.Generator().manual_seed(2))
    _, forward = jvp(lambda x: t.step(x, 2), (c.detach(),), (v,))
    u = torch.zeros_like(c, requires_grad=True)
    (pulled,) = torch.autograd.grad(t.step(c, 2), c, u, create_graph=True)
    (twice,) = torch.autograd.grad(pulled, u, v)
    torch.testing.assert_close(twice, forward, rtol=1e-9, atol=1e-9)


@torch.no_grad()
@BOTH
def test_stream_stays_fp32_under_autocast(batch: Batch, make: Make) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        t = make().run(batch, Loops.fixed(LOOPS))
    assert t.state(LOOPS).dtype == t.records[0]["router_logits"].dtype == torch.float32


@BOTH
def test_core_saves_loads_and_counts_flops(batch: Batch, make: Make, tmp_path: object) -> None:
    from loopkit.model import count_flops

    model = make()
    path = tmp_path / "weights.safetensors"  # type: ignore[operator]
    save_weights(model, path)
    empty = make(seed=None)
    load_weights(empty, path)
    assert torch.equal(logits(empty, batch), logits(model, batch))
    assert logits(make(device="meta"), batch.to("meta")).shape == (LOOPS, 3, LENGTH, VOCABULARY)
    first, second, third = count_flops(model, LOOPS, LENGTH).loops
    if make is build:  # half and a quarter of the matrices' work, less of the attention's
        assert second < 0.51 * first
        assert third < 0.26 * first
    else:  # nothing is known of what tokens will choose
        assert first == second == third


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("keep=[1.0, 0.5]", "keep has 2 values, but training runs up to 3 loops; set one value per loop"),
        ("keep=[0.5, 1.0, 0.5]", r"keep must not increase, because tokens do not return: \[0.5, 1.0, 0.5\]"),
        ("router=token_choice", "keep has no effect with token_choice"),
    ],
)
def test_invalid_options_are_rejected(override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(f"model.core.{override}")


def test_default_shares_decrease_evenly() -> None:
    assert build("model.core.keep=null", max_loops=4).core.router.keep == (1.0, 0.75, 0.5, 0.25)


def test_streams_and_more_loops_are_rejected(batch: Batch) -> None:
    model = build()
    t = model.run(batch, Loops.fixed(1))
    with pytest.raises(ValueError, match="loops 1 to 3; it cannot run loop 4"):
        model.core(t.e, t.context(4, t.e))
    with pytest.raises(ValueError, match="single stream"):
        model.core(t.e[:, :, None], t.context(1, t.e))
