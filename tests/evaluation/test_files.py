from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loopkit.evaluation import ModelSource, Result, completions_of, results_of, write_result
from loopkit.runs import RunFolder


def test_repeated_evaluation_replaces_its_file(tmp_path: Path, result: Result) -> None:
    folder = RunFolder(tmp_path)
    first = write_result(result, folder)
    assert first.name.startswith("step-00000001-validation-")
    assert json.loads(first.read_text()) == result.to_json()
    assert write_result(result, folder) == first
    other = write_result(replace(result, conditions=replace(result.conditions, dtype="bf16_autocast")), folder)
    assert results_of(folder, 1) == sorted([first, other])
    assert results_of(folder, 2) == []


def test_averaged_weights_have_files_of_their_own(tmp_path: Path, result: Result) -> None:
    folder = RunFolder(tmp_path)
    averaged = write_result(replace(result, origin=replace(result.origin, weights="ema")), folder)
    trained = write_result(result, folder)
    assert averaged.name == f"ema-{trained.name}"
    assert json.loads(averaged.read_text()) == {**result.to_json(), "weights": "ema"}
    assert results_of(folder, 1) == [trained]
    assert results_of(folder, 1, "ema") == [averaged]
    assert completions_of(folder, 1) != completions_of(folder, 1, "ema")


def test_result_without_step_is_rejected(tmp_path: Path, result: Result) -> None:
    with pytest.raises(ValueError, match="has no optimizer step"):
        write_result(replace(result, origin=ModelSource()), RunFolder(tmp_path))
