"""The bigram baseline is normalized, beats unigrams, and is tuned only on train."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from loopkit.data import prepare
from loopkit.recipe import component
from loopkit.recipe.format import DataConfig
from tests.data.bigram import Bigram, bigram_perplexity, fit_bigram


def test_probabilities_sum_to_one() -> None:
    train = np.random.default_rng(0).integers(0, 6, 40)
    model = Bigram(train, 8, discount=0.7, continuation=0.5)
    for before in (int(train[0]), 7):  # 7 was never seen
        losses = [model.losses(np.array([before, after]))[0] for after in range(8)]
        assert math.isclose(sum(math.exp(-loss) for loss in losses), 1.0, rel_tol=1e-9)


def test_deterministic_chain_is_learned() -> None:
    train = np.tile(np.arange(8), 200)
    assert bigram_perplexity(train, train[:100], 8) < 1.1


def test_noise_has_vocabulary_size_perplexity() -> None:
    rng = np.random.default_rng(0)
    assert bigram_perplexity(rng.integers(0, 16, 20_000), rng.integers(0, 16, 5000), 16) == pytest.approx(16, rel=0.02)


def test_beats_unigrams_on_python_docs(tmp_path: Path) -> None:
    data = DataConfig(source=component("source", "python_docs"), tokenizer=component("tokenizer", "regex"))
    prepared = prepare(data, cache=tmp_path)
    train, validation = (s.store.read(0, len(s.store)) for s in prepared.splits.values())
    size = prepared.tokenizer.size
    fitted = fit_bigram(train, size)
    perplexity = math.exp(fitted.losses(validation).mean())
    counts = np.bincount(train, minlength=size) + 1
    unigram = math.exp(-np.log(counts[validation[1:]] / counts.sum()).mean())
    assert 5 < perplexity < 0.5 * unigram
