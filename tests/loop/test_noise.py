"""Noise depends only on seed, step, sample, position and stream."""

from __future__ import annotations

import math

import pytest
import torch

from loopkit.loop import Noise


def noise(rows: int = 4, length: int = 6, *, seed: int = 3, step: int = 5, stream: int = 0) -> Noise:
    return Noise(seed, step, torch.arange(rows), torch.arange(length).expand(rows, length), stream)


def test_noise_is_invariant_to_batch_split() -> None:
    full = noise().fold(2).normal(3, 5)
    assert full.shape == (4, 6, 3, 5)
    again = torch.cat([noise().rows(torch.tensor([row])).fold(2).normal(3, 5) for row in range(4)])
    assert torch.equal(full, again)
    late = Noise(3, 5, torch.tensor([2]), torch.tensor([[4]])).fold(2).normal(3, 5)
    assert torch.equal(late[0, 0], full[2, 4])


def test_noise_depends_on_every_key() -> None:
    base = noise().normal(7)
    for other in (noise(seed=4), noise(step=6), noise().fold(0), noise().fold(1), noise().fold(0).fold(0)):
        assert (other.normal(7) - base).abs().min() > 0
    shifted = Noise(3, 5, torch.arange(4), torch.arange(6).expand(4, 6) + 1).normal(7)
    assert torch.equal(shifted[:, :-1], base[:, 1:])


def test_ignores_the_global_generator() -> None:
    torch.manual_seed(0)
    first = noise().normal(2)
    torch.rand(3)
    assert torch.equal(noise().normal(2), first)


def test_is_standard_normal_and_uncorrelated() -> None:
    x = noise(40, 100).normal(50).double()
    error = 1 / math.sqrt(x.numel())
    assert abs(x.mean()) < 4 * error
    assert abs(x.var() - 1) < 4 * math.sqrt(2) * error
    assert abs((x**4).mean() - 3) < 4 * math.sqrt(96) * error
    for a, b in ((x[:, 1:], x[:, :-1]), (x[1:], x[:-1]), (x[..., 1:], x[..., :-1])):
        assert abs((a * b).mean()) < 4 * error
    u = noise(40, 100).uniform(50)
    assert 0 < u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 4 * error / math.sqrt(12)


@pytest.mark.parametrize("number", [0, 3, 0x504E, 2**40])
def test_streams_per_sequence_fold_like_single_ones(number: int) -> None:
    """A stream for each sequence equals the stream of each sequence, for numbers of any size."""
    sample, positions = torch.arange(3), torch.arange(4).expand(3, 4)
    noise = Noise(seed=7, step=2, sample=sample, positions=positions)
    together = noise.fold(torch.tensor([1, 5, 2])).fold(number).tokens()
    for row, loop in enumerate((1, 5, 2)):
        assert torch.equal(together[row], noise.fold(loop).fold(number).tokens()[row])
