from __future__ import annotations

import math
import subprocess
import sys

import pytest

from loopkit.components.task import Corpus, Likelihood, Perplexity


def figures(*answers: Likelihood) -> dict[str, float]:
    task = Perplexity()
    return task.total([task.mark(Corpus(), answer) for answer in answers])


def test_uniform_prediction_has_vocabulary_size_perplexity() -> None:
    answer = Likelihood(nll=120 * math.log(61), tokens=120, words=40, bytes=200)
    result = figures(answer)
    assert result["token_ppl"] == pytest.approx(61, rel=1e-14)
    assert result["loss"] == pytest.approx(math.log(61))
    assert result["word_ppl"] == pytest.approx(61**3)
    assert result["bits_per_byte"] == pytest.approx(120 / 200 * math.log2(61))


def test_corpora_are_pooled() -> None:
    parts = Likelihood(10.0, 4, 2, 9), Likelihood(20.0, 11, 3, 31)
    assert figures(*parts) == figures(Likelihood(30.0, 15, 5, 40))


def test_figures_without_denominator_are_omitted() -> None:
    assert set(figures(Likelihood(10.0, 4))) == {"loss", "token_ppl"}
    assert set(figures(Likelihood(10.0, 4, words=0, bytes=9))) == {"loss", "token_ppl", "bits_per_byte"}
    assert figures(Likelihood(0.0, 0)) == {}


def test_perplexity_overflow_is_infinite() -> None:
    result = figures(Likelihood(nll=10_000.0, tokens=1000, words=10, bytes=4000))
    assert result["token_ppl"] == pytest.approx(math.exp(10))
    assert result["word_ppl"] == math.inf


def test_one_request_for_the_corpus() -> None:
    assert list(Perplexity().requests()) == [Corpus("corpus")]


def test_import_needs_no_torch() -> None:
    code = "import sys, loopkit.components.task; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
