"""Decoding with a cache gives what recomputation gives."""

from __future__ import annotations

import pytest
import torch

from loopkit.loop import IGNORE, PAD, Batch, FullCache, Loops
from loopkit.model import cache_numbers
from tests.model.tiny import tiny

PARTS = {
    "position": "rope",
    "prelude": 1,
    "coda": 1,
    "start": "normal",
    "injection": "concat",
    "block": {"type": "transformer", "attention": {"heads": 4, "kv_heads": 2}, "mlp": {"ratio": 2}},
}


def left_pad(lengths: list[int], *, width: int) -> Batch:
    """Sequences that end at the same position; padding precedes them."""
    tokens = torch.randint(0, 23, (len(lengths), width), generator=torch.Generator().manual_seed(1))
    places = torch.arange(width) - (width - torch.tensor(lengths))[:, None]
    places = places.where(places >= 0, PAD)
    return Batch(tokens, torch.full_like(tokens, IGNORE), places, torch.arange(len(lengths)))


def part_of(batch: Batch, first: int, last: int) -> Batch:
    pieces = (batch.tokens, batch.labels, batch.positions)
    tokens, labels, positions = (piece[:, first:last] for piece in pieces)
    return Batch(tokens, labels, positions, batch.sample)


@pytest.mark.parametrize("position", ["rope", "learned", "none"])
@pytest.mark.parametrize("lengths", [[8, 8], [8, 3, 1]])
@torch.no_grad()
def test_one_token_at_a_time_equals_recomputation(lengths: list[int], position: str) -> None:
    model, loops = tiny(**(PARTS | {"position": position})), Loops.fixed(3)
    batch = left_pad(lengths, width=8)
    uncached = model.run(batch, loops).logits(3)
    cache = FullCache(len(lengths))
    pieces = [(0, 5), (5, 6), (6, 8)]
    cached = torch.cat([model.run(part_of(batch, *p), loops, cache=cache).logits(3) for p in pieces], dim=1)
    real = batch.positions < PAD
    torch.testing.assert_close(cached[real], uncached[real], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_coda_has_cache_slots_per_loop() -> None:
    model, loops = tiny(**(PARTS | {"carry": "readout"})), Loops.fixed(3)
    batch = left_pad([8, 5], width=8)
    uncached = model.run(batch, loops)
    cache = FullCache(2)
    parts = [model.run(part_of(batch, *p), loops, cache=cache) for p in [(0, 5), (5, 6), (6, 8)]]
    real = batch.positions < PAD
    for k in (1, 2, 3):
        cached = torch.cat([part.logits(k) for part in parts], dim=1)
        torch.testing.assert_close(cached[real], uncached.logits(k)[real], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_removed_sequences_do_not_affect_others() -> None:
    model, loops = tiny(**PARTS), Loops.fixed(3)
    batch = left_pad([8, 3, 6], width=8)
    uncached = model.run(batch, loops).logits(3)
    cache, left = FullCache(3, room=8), torch.tensor([2, 0])
    model.run(part_of(batch, 0, 5), loops, cache=cache).logits(3)
    before = cache.num_bytes
    cache.narrow(left)
    assert cache.num_bytes * 3 == before * 2
    for i in (5, 6, 7):
        got = model.run(part_of(batch, i, i + 1).rows(left), loops, cache=cache).logits(3)
        torch.testing.assert_close(got[:, 0], uncached[left, i], rtol=1e-5, atol=1e-5)
    assert cache.num_bytes == cache_numbers(model, 3) * 4 * 2 * 8, "no more is reserved than there is room for"


@torch.no_grad()
def test_cache_memory_doubles_when_full() -> None:
    cache, places, copied = FullCache(1), [], 0
    for i in range(100):
        keys = torch.full((1, 1, 1, 2), float(i))
        seen, _, _ = cache.extend((1, 0), keys, keys, torch.tensor([[i]]), None)
        copied += seen.data_ptr() not in places
        places.append(seen.data_ptr())
        assert seen[0, 0, :, 0].tolist() == list(range(i + 1))
    assert copied <= 8
    assert cache.num_bytes == 2 * 128 * 2 * 4


@torch.no_grad()
def test_padding_changes_nothing() -> None:
    model, loops = tiny(**PARTS), Loops.fixed(3)
    padded = left_pad([8, 3], width=8)
    alone = Batch(padded.tokens[1:, 5:], padded.labels[1:, 5:], padded.positions[1:, 5:], padded.sample[1:])
    got = model.run(padded, loops).logits(3)[1:, 5:]
    torch.testing.assert_close(got, model.run(alone, loops).logits(3), rtol=1e-5, atol=1e-5)
    right = Batch(
        torch.cat([alone.tokens, torch.full((1, 5), 9)], dim=1),
        torch.full((1, 8), IGNORE),
        torch.tensor([[0, 1, 2] + [PAD] * 5]),
        alone.sample,
    )
    torch.testing.assert_close(model.run(right, loops).logits(3)[:, :3], got, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_slots_and_bytes_equal_the_estimate() -> None:
    model, cache = tiny(**PARTS), FullCache(2)
    model.run(left_pad([8, 8], width=8), Loops.fixed(3), cache=cache).logits(3)
    # layer 0 is the prelude, 1 and 2 the core, 3 the coda, which reads loop 3 after the last loop
    assert sorted(cache.slots) == [(0, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 3, 3)]
    assert cache.num_bytes == cache_numbers(model, 3) * 4 * 2 * 8


@torch.no_grad()
def test_stopped_sequence_is_masked_in_cache() -> None:
    cache = FullCache(3)
    keys, places = torch.arange(6.0).view(3, 1, 2, 1), torch.tensor([[0, 1]] * 3)
    cache.extend((1, 0), keys, keys, places, None)
    rows = torch.tensor([2, 0])
    new = torch.tensor([[[[7.0]]], [[[8.0]]]])
    seen, _, seen_places = cache.extend((1, 0), new, new, torch.tensor([[2], [2]]), rows)
    assert seen[:, 0, :, 0].tolist() == [[4, 5, 7], [0, 1, 8]]
    assert seen_places.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert cache.slots[1, 0][2].tolist() == [[0, 1, 2], [0, 1, PAD], [0, 1, 2]]
