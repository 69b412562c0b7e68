"""The JSON of an evaluation and the metrics of a run, as loopkit writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopkit.recipe import load_recipe
from loopkit.runs import RunFolder


def evaluation(depths: int = 8, trained: tuple[int, int] = (4, 4), **changes: Any) -> dict[str, Any]:
    rows = []
    for k in range(1, depths + 1):
        loss = 3.2 + 0.4 / k + 0.02 * max(0, k - 4) ** 2
        rows.append(
            {
                "depth": k,
                "trained": trained[0] <= k <= trained[1],
                "loss": loss,
                "token_ppl": math.exp(loss),
                "word_ppl": math.exp(2.1 * loss),
                "bits_per_byte": 0.38 * loss / math.log(2),
                "state_norm": {"mean": 20.0 * k, "median": 12.0 * k, "p99": 70.0 * k, "max": 400.0 * k**2, "std": 9.0},
                "radial_fraction": 5e-9 * k,
            }
        )
    result = {
        "run": "wikitext_44m_raw-mini",
        "recipe": "wikitext_44m_raw",
        "recipe_hash": "0123abcd",
        "checkpoint": "step-00000600",
        "step": 600,
        "split": "validation",
        "slice": "first 16,384 of 25,012 tokens of validation",
        "data": "f00d",
        "tokenizer": {"type": "regex", "size": 20000},
        "dtype": "fp32",
        "device": "cpu",
        "protocol": "non_overlapping",
        "window": 256,
        "stride": 256,
        "batch": 8,
        "read_as": "depth",
        "tokens_scored": 16384,
        "words": 7931,
        "bytes": 43210,
        "trained_depths": {"min": trained[0], "max": trained[1], "mean": sum(trained) / 2},
        "core_calls": 64,
        "batches": 8,
        "passes": "one",
        "depths": rows,
        "units": {"state_norm": "Euclidean norm of the state per token, dimensionless"},
    }
    return result | changes


def metrics(steps: int = 600, loops: Callable[[int], int] = lambda step: 4) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "loss": 3.0,
            "ce": [3 + 4 * math.exp(-step / 150) + 0.1 / k for k in range(1, loops(step) + 1)],
            "loops": loops(step),
            "state_norm": [20.0 * k * (1 + step / 100) for k in range(1, loops(step) + 1)],
            "tokens": 4096 * step,
            "flops": 1e9 * loops(step) * step,
            "tokens_per_s": 1234.5,
            "mfu": 0.31,
            "step_s": 0.5,
            "peak_memory_bytes": 10**9,
        }
        for step in range(1, steps + 1)
    ]


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    def make(name: str, evaluations: list[dict[str, Any]], lines: list[dict[str, Any]], **provenance: Any) -> RunFolder:
        folder = RunFolder(tmp_path / name).create()
        folder.resolved.write_text(load_recipe("wikitext_44m_raw", ["smoke"]).to_yaml())
        folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        for number, result in enumerate(evaluations):
            (folder.evaluations / f"{number}.json").write_text(json.dumps(result))
        if provenance:
            folder.provenance.write_text(json.dumps(provenance))
        return folder

    return make


@pytest.fixture
def sample() -> Callable[..., dict[str, Any]]:
    """Builds the JSON of an evaluation."""
    return evaluation


@pytest.fixture
def curves() -> Callable[..., list[dict[str, Any]]]:
    """Builds the lines of a metrics file."""
    return metrics
