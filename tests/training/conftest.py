"""A tiny recipe on a few hundred characters of text, which trains in well under a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from loopkit.cost.hardware import recipe_ceiling
from loopkit.recipe import Recipe, load_recipe
from tests.overriding import latest
from tests.training.runs import fit

RECIPE = """
loopkit: 2
seed: 5
data:
  source: {type: text, path: texts}
  tokenizer: bytes
  length: 16
model:
  width: 16
  embedding: {dropout: 0.2}
  position: learned
  block: {type: transformer, attention: {heads: 2, dropout: 0.2}, mlp: {type: swiglu, ratio: 2}, dropout: 0.2}
  core: 1
  readout: norm
  init: normal
objective: {supervision: per_loop, regularizers: {norm_penalty: {weight: 0.01}}}
train:
  steps: 8
  batch: 8
  micro_batch: 2
  schedule: {type: lognormal, mu: 0.7, sigma: 0.5, max: 4}
  lr: {type: cosine, peak: 1e-2, warmup: 2}
  checkpoint: {every: 3, keep: 10}
  precision: fp32
evaluate: {every: null, depths: 1-2, batch: 4, tasks: {perplexity: {}}}
"""
TEXT = "\n\n".join(f"The {n}th line of a short text says {n * n}, then {n * n * n}." for n in range(12))

Maker = Callable[..., Recipe]


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Load the tiny recipe with ``key=value`` overrides."""
    file = write_recipe(tmp_path_factory.mktemp("recipe"))

    def make(*overrides: str) -> Recipe:
        return load_recipe(file, (), latest(*overrides))

    return make


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny recipe's file, for other processes."""
    return write_recipe(tmp_path_factory.mktemp("recipe"))


def write_recipe(folder: Path) -> Path:
    """Write the tiny recipe and its texts to a folder; return the recipe's path."""
    (folder / "texts").mkdir()
    (folder / "texts" / "train.txt").write_text(TEXT)
    (folder / "texts" / "validation.txt").write_text(TEXT[:100])
    (folder / "tiny.yaml").write_text(RECIPE)
    return folder / "tiny.yaml"


@pytest.fixture(scope="session")
def finished_run(recipe: Maker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run of the tiny recipe. Tests must not change it."""
    return fit(recipe(), tmp_path_factory.mktemp("runs") / "whole").folder.path


@pytest.fixture(autouse=True, scope="session")
def fast_process() -> Iterator[None]:
    """Use one thread, and a constant instead of the measured matmul rate."""
    torch.set_num_threads(1)
    recipe_ceiling.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("loopkit.cost.hardware.measure_matmul_rate", lambda *_: 1e12)
        yield
