"""Restored random generators continue their sequences."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from loopkit.training.checkpointing import rng

CPU = torch.device("cpu")


def numbers() -> list[float]:
    return [
        *torch.randn(5).tolist(),
        *np.random.randn(3).tolist(),  # an odd number leaves half of a pair behind
        random.gauss(0, 1),
        random.random(),
    ]


def test_restored_state_repeats_the_numbers(tmp_path: Path) -> None:
    rng.seed_all(1, 0)
    numbers()
    save_file(rng.capture(CPU), tmp_path / "state")
    expected = numbers()
    numbers()
    rng.restore(load_file(tmp_path / "state"), CPU)
    assert numbers() == expected


def test_ranks_and_seeds_differ() -> None:
    drawn = []
    for seed, rank in ((1, 0), (1, 1), (2, 0)):
        rng.seed_all(seed, rank)
        drawn.append(numbers())
    assert len({tuple(values) for values in drawn}) == 3
    rng.seed_all(1, 0)
    assert numbers() == drawn[0]
