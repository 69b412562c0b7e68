from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest

from loopkit.components.task import Likelihood
from loopkit.evaluation import ModelSource, Result, TrainedDepths
from loopkit.evaluation.figures import compute_task_figures, merge_maps, probe_figures
from loopkit.evaluation.result import build_row


def test_the_json_has_every_key_of_the_format(result: Result) -> None:
    record = result.to_json()
    assert set(record) == {
        *(
            "run",
            "recipe",
            "recipe_hash",
            "checkpoint",
            "step",
            "split",
            "slice",
            "data",
            "tokenizer",
            "dtype",
            "device",
        ),
        *("protocol", "window", "stride", "batch", "read_as", "tokens_scored", "words", "bytes", "trained_depths"),
        *("core_calls", "batches", "passes", "depths"),
    }
    assert record["trained_depths"] == {"min": 1, "max": 4, "mean": 2.5}
    assert record["depths"] == [{"depth": 1, "trained": True, "loss": 1.0}]
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_unknown_values_are_absent_not_null(result: Result) -> None:
    conditions = replace(result.conditions, words=None, bytes=None)
    unknown = replace(result, origin=ModelSource(), trained=None, conditions=conditions)
    record = unknown.to_json()
    assert not {"run", "recipe", "checkpoint", "step", "trained_depths", "words", "bytes", "tables", "notes"} & set(
        record
    )
    assert None not in record.values()


def test_a_row_marks_the_trained_range() -> None:
    trained = TrainedDepths(2, 4, 3.0)
    assert [build_row(k, trained, {})["trained"] for k in range(1, 6)] == [False, True, True, True, False]
    assert build_row(1, None, {}) == {"depth": 1}


def test_non_finite_figures_are_listed() -> None:
    row = build_row(
        3, None, {"loss": 1e3, "token_ppl": math.inf, "norm": {"mean": math.nan, "max": 2.0}, "x": {"y": math.inf}}
    )
    assert row == {"depth": 3, "loss": 1e3, "norm": {"max": 2.0}, "not_finite": ["token_ppl", "norm.mean", "x.y"]}


def test_ambiguous_figures_are_refused() -> None:
    assert merge_maps([{"a": 1}, {"b": 2}], ["x", "y"], "figure") == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="x and z both define the figure 'a'"):
        merge_maps([{"a": 1}, {"b": 2}, {"a": 3}], ["x", "y", "z"], "figure")
    assert probe_figures([{"a": {1: 0.5}}, {"b": {2: 1.5}}], ["x", "y"], 1) == {"a": 0.5}
    assert compute_task_figures({}, Likelihood(0.0, 0), []) == {}


def test_reading_depths_needs_no_torch() -> None:
    code = "import sys; from loopkit.evaluation import parse_depths, Result; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
