"""A stopped and resumed run equals an uninterrupted one, bit for bit."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from loopkit.data import OtherData
from loopkit.recipe import Recipe
from loopkit.runs import CheckpointProblem, RunFolder, read_metrics, read_provenance
from loopkit.runs.checkpoint import Checkpoint
from loopkit.training.checkpointing import checkpoint
from loopkit.training.checkpointing.resume import OtherRecipe
from loopkit.training.display.progress import Display
from loopkit.training.errors import Interrupted
from loopkit.training.evaluation_hook import EvaluationHook
from loopkit.training.step.engine import Engine
from tests.training.conftest import Maker
from tests.training.runs import assert_same_bits, fit, lines, tensors


def stop_at(monkeypatch: pytest.MonkeyPatch, where: Any, method: str, call: int, signum: signal.Signals) -> None:
    """Send this process a signal at the n-th call of a method."""
    calls = [0]
    real: Callable[..., Any] = getattr(where, method)

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            os.kill(os.getpid(), signum)
        return real(self, *args, **options)

    monkeypatch.setattr(where, method, counting)


@pytest.mark.parametrize(
    ("where", "method", "call", "signum", "step"),
    [
        (Display, "log", 4, signal.SIGTERM, 4),  # after a step
        (Engine, "next_micro_step", 3 * 4 + 2, signal.SIGINT, 4),  # during the fifth step, which is rolled back
        (Engine, "next_micro_step", 1, signal.SIGTERM, 0),  # before the first step
    ],
)
def test_signal_and_resume_are_bitwise_exact(
    recipe: Maker,
    finished_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    method: str,
    call: int,
    signum: signal.Signals,
    step: int,
) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, where, method, call, signum)
        with pytest.raises(Interrupted) as stopped:
            fit(recipe(), tmp_path / "halves")
    assert (stopped.value.step, stopped.value.exit_code) == (step, 128 + signum)
    assert [line["step"] for line in lines(tmp_path / "halves")] == list(range(1, step + 1))
    fit(recipe(), tmp_path / "halves", resume=True)
    assert_same_bits(finished_run, tmp_path / "halves", 8)
    sessions = read_provenance(RunFolder(tmp_path / "halves").provenance)["sessions"]
    assert [(s["from_step"], s["to_step"], s["status"]) for s in sessions] == [
        (0, step, "interrupted"),
        (step, 8, "finished"),
    ]


@pytest.mark.parametrize("per", ["micro_step", "sequence"])
def test_drawn_loops_resume_exactly(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per: str) -> None:
    make = recipe(f"train.loops_per={per}", "train.backprop=2", "train.steps=5")
    fit(make, tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_at(patched, Display, "log", 2, signal.SIGTERM)
        with pytest.raises(Interrupted):
            fit(make, tmp_path / "halves")
    fit(make, tmp_path / "halves", resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "halves", 5)


def test_buffers_that_follow_the_data_resume_exactly(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = recipe("model.readout={type: alpha, s_ref: ema}", "train.steps=4")
    fit(make, tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_at(patched, Display, "log", 2, signal.SIGTERM)
        with pytest.raises(Interrupted):
            fit(make, tmp_path / "halves")
    fit(make, tmp_path / "halves", resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "halves", 4)


@pytest.mark.parametrize("stage", [0, 1])
def test_muon_resumes_exactly(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: int) -> None:
    zero = f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}"
    make = recipe("train.optimizer={type: muon, lr_scales: {embedding: 3}}", zero, "train.steps=5")
    fit(make, tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_at(patched, Display, "log", 2, signal.SIGTERM)
        with pytest.raises(Interrupted):
            fit(make, tmp_path / "halves")
    fit(make, tmp_path / "halves", resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "halves", 5)
    momenta = [name for name in tensors(tmp_path / "whole", 5) if name.endswith("/momentum_buffer")]
    assert len(momenta) == 5  # the matrices of the one block


def test_killed_run_resumes_from_its_last_checkpoint(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "killed")
    folder = RunFolder(tmp_path / "killed")
    for step in (6, 8):
        shutil.rmtree(folder.checkpoint(step))
    with folder.metrics.open("a") as metrics:
        metrics.write('{"step": 9, "lo')
    fit(recipe(), tmp_path / "killed", resume=True)
    assert_same_bits(finished_run, tmp_path / "killed", 8)


def test_damaged_checkpoint_is_skipped_with_a_warning(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "hurt")
    folder = RunFolder(tmp_path / "hurt")
    for step in (6, 8):
        (folder.checkpoint(step) / "optimizer.safetensors").write_bytes(b"nonsense")
    shown = io.StringIO()
    fit(recipe(), tmp_path / "hurt", resume=True, console=Console(file=shown))
    assert "warning: a newer checkpoint is damaged" in shown.getvalue()
    assert str(folder.checkpoint(8) / "optimizer.safetensors") in shown.getvalue()
    assert_same_bits(finished_run, tmp_path / "hurt", 8)
    (folder.checkpoint(3) / "weights.safetensors").unlink()
    for step in (0, 6, 8):
        shutil.rmtree(folder.checkpoint(step))
    before = folder.metrics.read_bytes()
    with pytest.raises(CheckpointProblem, match=r"no checkpoint is complete: .*weights\.safetensors is missing"):
        fit(recipe(), tmp_path / "hurt", resume=True)
    assert folder.metrics.read_bytes() == before


def test_finished_run_can_train_further(recipe: Maker, tmp_path: Path) -> None:
    constant = "train.lr={type: constant, peak: 1e-2}"
    fit(recipe(constant), tmp_path / "whole")
    fit(recipe(constant, "train.steps=4"), tmp_path / "longer")
    fit(recipe(constant, "evaluate.every=8"), tmp_path / "longer", resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "longer", 8)


def test_run_resumes_under_another_zero_stage(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "moved")
    for step in (6, 8):
        shutil.rmtree(RunFolder(tmp_path / "moved").checkpoint(step))
    shown = io.StringIO()
    other = recipe("train.deepspeed={zero_optimization: {stage: 2}}")
    fit(other, tmp_path / "moved", resume=True, console=Console(file=shown, width=200))
    assert "train.deepspeed.zero_optimization: (absent) in the run, {'stage': 2} now" in shown.getvalue()
    actual, expected = tensors(tmp_path / "moved", 8), tensors(finished_run, 8)
    assert actual.keys() == expected.keys()
    for name in actual:
        assert torch.allclose(actual[name].double(), expected[name].double(), rtol=1e-3, atol=1e-5), name


def test_fewer_steps_than_completed_are_refused(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    with pytest.raises(ValueError, match=r"already done 8 steps, not 4; raise train\.steps"):
        fit(recipe("train.steps=4"), tmp_path / "run", resume=True)
    assert lines(tmp_path / "run") == lines(finished_run)


def test_resume_of_another_experiment_is_refused(recipe: Maker, tmp_path: Path) -> None:
    fit(recipe("train.steps=1"), tmp_path / "run")
    with pytest.raises(OtherRecipe, match=r"train\.lr\.peak: 0\.01 in the run, 0\.02 now"):
        fit(recipe("train.lr.peak=2e-2"), tmp_path / "run", resume=True)
    assert len(read_metrics(RunFolder(tmp_path / "run").metrics)) == 1


def moved_texts(recipe: Recipe, folder: Path) -> list[str]:
    """Copy a recipe's texts and return the setting with the new path."""
    texts = folder / "elsewhere"
    shutil.copytree(recipe.data.source.options["path"], texts)
    return [f"data.source.path={texts}"]


def test_moved_data_may_resume(recipe: Maker, tmp_path: Path) -> None:
    constant = "train.lr={type: constant, peak: 1e-2}"
    fit(recipe(constant), tmp_path / "whole")
    fit(recipe(constant, "train.steps=4"), tmp_path / "run")
    fit(recipe(constant, *moved_texts(recipe(), tmp_path)), tmp_path / "run", resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "run", 8)


@pytest.mark.parametrize("recorded", ["digests", "counts"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_other_data_is_refused(recipe: Maker, finished_run: Path, tmp_path: Path, split: str, recorded: str) -> None:
    """The content decides, also at the same path, and also if the run recorded only counts."""
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(finished_run, folder.path)
    if recorded == "counts":
        facts = read_provenance(folder.provenance)
        for report in facts["data"].values():
            del report["sha256"]
        folder.provenance.write_text(json.dumps(facts))
    (setting,) = moved_texts(recipe(), tmp_path)
    file = tmp_path / "elsewhere" / f"{split}.txt"
    file.write_text(file.read_text() + "\n\nMore.")
    with pytest.raises(
        OtherData, match=rf"data\.source: the {split} split .*tokens in the run, .* now\); restore the data"
    ):
        fit(recipe("train.steps=9", setting), folder.path, resume=True)
    assert lines(folder.path) == lines(finished_run)


def test_other_text_of_equal_length_is_refused(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    (setting,) = moved_texts(recipe(), tmp_path)
    file = tmp_path / "elsewhere" / "train.txt"
    file.write_text(file.read_text().replace("short", "sharp"))
    with pytest.raises(OtherData, match="the same number of tokens, but not the same tokens"):
        fit(recipe("train.steps=9", setting), tmp_path / "run", resume=True)


def test_run_without_newer_options_resumes(
    recipe: Maker, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint's recipe lacks options of a section and of a component: they count as their defaults."""
    shutil.copytree(finished_run, tmp_path / "run")
    read_state = checkpoint.read_state

    def older(newest: Checkpoint) -> dict[str, Any]:
        state = read_state(newest)
        del state["recipe"]["train"]["health"], state["recipe"]["model"]["embedding"]["scale"]
        del state["recipe"]["model"]["block"]["attention"]["value_std"]
        return state

    monkeypatch.setattr(checkpoint, "read_state", older)
    assert fit(recipe(), tmp_path / "run", resume=True).step == 8
    assert_same_bits(finished_run, tmp_path / "run", 8)


def test_resume_does_not_change_a_finished_run(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    assert fit(recipe(), tmp_path / "run", resume=True).step == 8
    assert_same_bits(finished_run, tmp_path / "run", 8)


def test_resume_repeats_an_interrupted_evaluation(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = recipe("evaluate.every=2")
    fit(often, tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_at(patched, EvaluationHook, "_evaluate", 2, signal.SIGTERM)
        with pytest.raises(Interrupted):
            fit(often, tmp_path / "halves")
    evaluations = RunFolder(tmp_path / "halves").evaluations
    assert [path.name[:13] for path in evaluations.iterdir()] == ["step-00000002"]
    fit(often, tmp_path / "halves", resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "halves", 8)
    for path in RunFolder(tmp_path / "whole").evaluations.iterdir():
        assert path.read_text().replace("whole", "halves") == (evaluations / path.name).read_text()
