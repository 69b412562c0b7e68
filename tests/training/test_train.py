"""A run from nothing, and what it leaves behind."""

from __future__ import annotations

import io
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from rich.console import Console

from loopkit.errors import UserError
from loopkit.runs import CheckpointProblem, RunExists, RunFolder, checkpoints, read_metrics, read_provenance
from loopkit.runs.checkpoint import newest_checkpoint
from loopkit.runs.lock import LOCK, RunBusy, held
from loopkit.runs.resolved import recorded_origins
from loopkit.studies.runs import INITIAL_FILES
from loopkit.training.checkpointing.checkpoint_policy import CheckpointPolicy
from loopkit.training.errors import NotFinite
from loopkit.training.evaluation_hook import has_evaluation
from loopkit.training.step.engine import Engine
from tests.training.conftest import Maker
from tests.training.runs import assert_same_bits, fit, lines, tensors


def test_a_run_leaves_everything_it_should(recipe: Maker, tmp_path: Path) -> None:
    trained = fit(recipe(), tmp_path / "run")
    folder = trained.folder
    assert trained.step == 8
    assert [c.step for c in checkpoints(folder.checkpoints)] == [0, 3, 6, 8]
    for path in (folder.recipe, folder.resolved, folder.provenance, folder.deepspeed, folder.metrics):
        assert path.stat().st_size > 0
    assert [path.name[:13] for path in folder.evaluations.iterdir()] == ["step-00000008"]
    assert {path.name for path in trained.checkpoint.check().path.iterdir()} == {
        *("weights.safetensors", "optimizer.safetensors", "generators-00000.safetensors"),
        *("state.json", "resolved.yaml", "tokenizer", "manifest.json"),
    }
    brought = recorded_origins(trained.checkpoint)
    assert {"core stack", "tokenizer characters"} & set(brought)
    assert all(origin.startswith("loopkit") for origin in brought.values())
    assert {(path.stat().st_mode & 0o777) for path in trained.checkpoint.path.glob("*.safetensors")} == {0o644}
    config = json.loads(folder.deepspeed.read_text())
    assert (config["train_batch_size"], config["train_micro_batch_size_per_gpu"]) == (8, 2)
    assert config["gradient_accumulation_steps"] == 4
    session = read_provenance(folder.provenance)["sessions"][0]
    assert (session["status"], session["to_step"], session["num_steps"]) == ("finished", 8, 8)
    assert session["ceiling"]["flops_per_s"] > 0


def test_metrics_say_what_was_done(whole: Path) -> None:
    found = read_metrics(RunFolder(whole).metrics)
    assert [line["step"] for line in found] == list(range(1, 9))
    assert [line["tokens"] for line in found] == [8 * 16 * step for step in range(1, 9)]
    assert len({line["loops"] for line in found}) > 1
    assert len({line["batch_sha"] for line in found}) == 8
    for line in found:
        assert len(line["ce"]) == len(line["state_norm"]) == line["loops"] == line["backprop_loops"]
        assert all(math.isfinite(value) for value in [*line["ce"], *line["state_norm"], line["grad_norm"]])
        assert line["loss"] == pytest.approx(
            sum(line["ce"]) / line["loops"] + 0.01 * line["regularizers"]["norm_penalty"]
        )
        assert 0 < line["mfu"] < 1
    assert found[0]["lr"] == pytest.approx(5e-3)
    assert found[1]["lr"] == pytest.approx(1e-2)
    assert found[-1]["loss"] < found[0]["loss"]


def test_the_same_recipe_gives_the_same_bits(recipe: Maker, whole: Path, tmp_path: Path) -> None:
    torch.randn(7)  # what the program did before is of no consequence
    fit(recipe(), tmp_path / "again")
    assert_same_bits(whole, tmp_path / "again", 8)
    fit(recipe("seed=6"), tmp_path / "other")
    assert lines(whole) != lines(tmp_path / "other")


def test_evaluation_does_not_disturb_training(recipe: Maker, whole: Path, tmp_path: Path) -> None:
    fit(recipe("evaluate.every=2"), tmp_path / "often")
    assert len(list((tmp_path / "often" / "eval").iterdir())) == 4
    assert_same_bits(whole, tmp_path / "often", 8)


@pytest.mark.parametrize("per", ["step", "sequence"])
def test_lines_do_not_depend_on_the_micro_batch(recipe: Maker, tmp_path: Path, per: str) -> None:
    """Dropout included, whose masks belong to the samples."""
    for micro in (8, 2, 1):
        fit(recipe("train.steps=2", f"train.loops_per={per}", f"train.micro_batch={micro}"), tmp_path / str(micro))
    whole = lines(tmp_path / "8")
    for micro in (2, 1):
        for ours, expected in zip(lines(tmp_path / str(micro)), whole, strict=True):
            for key in expected:
                if isinstance(expected[key], dict | list | float):
                    assert ours[key] == pytest.approx(expected[key], rel=1e-4), key
                else:
                    assert ours[key] == expected[key], key


def test_nothing_measured_is_nothing_written(recipe: Maker, tmp_path: Path) -> None:
    fit(recipe("evaluate.tasks.perplexity=false"), tmp_path / "run")
    assert not any((tmp_path / "run" / "eval").iterdir())


def test_texts_may_be_left_to_eval(recipe: Maker, tmp_path: Path) -> None:
    tasks = "evaluate.tasks={perplexity: {}, gsm8k: {type: math, path: nowhere.jsonl}}"
    asked = recipe("train.steps=1", tasks, "evaluate.generation=eval")
    fit(asked, tmp_path / "run")
    (file,) = RunFolder(tmp_path / "run").evaluations.iterdir()
    assert "loss" in json.loads(file.read_text())["depths"][0]
    assert "gsm8k" not in file.read_text()
    assert has_evaluation(asked)
    assert not has_evaluation(
        recipe("evaluate.tasks={perplexity: false, math: {path: nowhere.jsonl}}", "evaluate.generation=eval")
    )
    with pytest.raises(UserError, match=r"nowhere\.jsonl does not exist"):
        fit(recipe("train.steps=1", tasks), tmp_path / "always")


def test_lines_may_be_rarer_than_steps(recipe: Maker, whole: Path, tmp_path: Path) -> None:
    fit(recipe("train.log_every=3"), tmp_path / "rare")
    every, some = lines(whole), lines(tmp_path / "rare")
    assert [line["step"] for line in some] == [3, 6, 8]
    assert some == [every[2], every[5], every[7]]


def test_an_existing_run_is_refused_before_anything_is_read(recipe: Maker, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    nowhere = f"data.source.path={tmp_path / 'nowhere'}"
    with pytest.raises(RunExists, match=r"--resume.*--name"):
        fit(recipe(nowhere), tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())


def test_a_mistake_leaves_no_folder(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no parameter matches 'gate\.\*'"):
        fit(recipe('train.trainable=["gate.*"]'), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_what_is_trainable_changes(recipe: Maker, tmp_path: Path) -> None:
    fit(recipe("train.steps=1"), tmp_path / "first")
    start = f"train.start_from={tmp_path / 'first'}"
    fit(recipe("train.steps=2", start, 'train.trainable=["core.*"]'), tmp_path / "second")
    before, after = tensors(tmp_path / "first", 1), tensors(tmp_path / "second", 2)
    for name in after:
        kind, _, parameter = name.partition(":")
        if kind == "weights":
            assert before[name].equal(after[name]) is not parameter.startswith("core."), name
    assert all(name.startswith("optimizer:model.core.") for name in after if name.startswith("optimizer"))


def test_starting_from_nothing_useful_is_refused(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"neither a run nor a checkpoint"):
        fit(recipe(f"train.start_from={tmp_path}"), tmp_path / "run")


def test_a_state_that_is_not_finite_stops_the_run_before_it_spoils_anything(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Engine.update

    def poisoned(self: Engine, lr: float) -> float | None:
        norm = real(self, lr)
        if self.deepspeed.global_steps == 4:
            self.trained[0].data.fill_(math.nan)
        return norm

    monkeypatch.setattr(Engine, "update", poisoned)
    with pytest.raises(
        NotFinite, match=r"step 5: the state of loop 1 is nan; the last good checkpoint is .*03\."
    ) as stopped:
        fit(recipe(), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    kept, damaged = newest_checkpoint(folder.checkpoints)
    assert (kept.step, kept.path, damaged) == (3, stopped.value.checkpoint, [])
    assert all(value.isfinite().all() for name, value in tensors(folder.path, 3).items() if "weights" in name)
    assert len(read_metrics(folder.metrics)) == 4
    assert read_provenance(folder.provenance)["sessions"][0]["status"] == "failed"


def test_weights_that_are_not_finite_are_never_saved(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match=r"step 3: a weight is not finite; the last good checkpoint is .*00\."):
        fit(recipe("train.lr={type: constant, peak: 1e38}", "train.log_every=8"), tmp_path / "run")
    assert [c.step for c in checkpoints(RunFolder(tmp_path / "run").checkpoints)] == [0]


def test_progress_goes_to_the_console_and_deepspeed_says_nothing(
    recipe: Maker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = io.StringIO()
    fit(recipe(), tmp_path / "run", console=Console(file=shown))
    assert "step 8/8  loss" in shown.getvalue()
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""


def test_resuming_what_never_was_is_an_error(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(CheckpointProblem, match="there is no checkpoint"):
        fit(recipe(), tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_being_trained_is_not_resumed_a_second_time(recipe: Maker, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with held(RunFolder(tmp_path / "run")), pytest.raises(RunBusy, match="another process is training"):
        fit(recipe("train.steps=9"), tmp_path / "run", resume=True)
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before | {tmp_path / "run" / LOCK: b""}


def test_what_a_study_may_remove_is_what_a_run_holds_before_its_first_checkpoint(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointPolicy, "save", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError, match="killed"):
        fit(recipe(), tmp_path / "run")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert LOCK in left
    assert left <= INITIAL_FILES
