"""Out-of-memory errors name a smaller micro-batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from loopkit.data.batch_sizes import BatchSizes
from loopkit.runs import RunFolder
from loopkit.training.evaluation_hook import EvaluationHook
from loopkit.training.step.engine import Engine
from loopkit.training.step.out_of_memory import OutOfMemory, explain_out_of_memory, suggest_smaller_step
from tests.training.conftest import Maker
from tests.training.runs import assert_same_bits, fit


def raises(error: Exception) -> Any:
    def act(*_: Any, **__: Any) -> None:
        raise error

    return act


def test_cpu_allocation_error_is_recognised() -> None:
    with (
        pytest.raises(OutOfMemory, match="step 4: there is not enough memory; try less") as ended,
        explain_out_of_memory("step 4", "try less", None),
    ):
        torch.empty(2**60, dtype=torch.uint8)
    assert ended.value.exit_code == 6
    assert isinstance(ended.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        MemoryError(),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_other_allocation_errors_are_recognised(error: Exception) -> None:
    with pytest.raises(OutOfMemory), explain_out_of_memory("a step", "try less", Path("c")):
        raise error


def test_unrelated_errors_are_not_changed() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), explain_out_of_memory("a step", "try less", None):
        raise RuntimeError("shapes differ")


@pytest.mark.parametrize(
    ("micro", "world", "overrides", "message"),
    [
        (4, 1, (), "train.micro_batch=2, which gives the same run"),
        (8, 1, (), "train.micro_batch=4"),
        (4, 2, (), "train.micro_batch=2"),
        (4, 1, ("train.loops_per=micro_step",), "train.micro_batch=2 under another --name"),
        (1, 1, (), "train.checkpointing=true"),
        (1, 1, ("train.checkpointing=true",), "shorter data.length"),
    ],
)
def test_remedy_fits_the_run(recipe: Maker, micro: int, world: int, overrides: tuple[str, ...], message: str) -> None:
    assert message in suggest_smaller_step(recipe(*overrides), BatchSizes.of(8, micro, world))


def test_run_resumes_with_a_smaller_micro_batch(
    recipe: Maker, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "micro_step", raises(torch.OutOfMemoryError("CUDA out of memory")))
        with pytest.raises(
            OutOfMemory, match=r"step 1: .*micro-batch is 2: try --set train\.micro_batch=1.*00000000"
        ) as ended:
            fit(recipe(), tmp_path / "run")
    assert ended.value.checkpoint == RunFolder(tmp_path / "run").checkpoint(0)
    fit(recipe(), tmp_path / "run", resume=True)
    assert_same_bits(finished_run, tmp_path / "run", 8)


def test_evaluation_error_names_its_batch(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EvaluationHook, "_evaluate", raises(MemoryError()))
    with pytest.raises(OutOfMemory, match=r"the evaluation of step 8: .*smaller evaluate\.batch.*00000008"):
        fit(recipe(), tmp_path / "run")
