"""Training runs: their files, metrics and errors."""

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


def test_run_writes_all_its_files(recipe: Maker, tmp_path: Path) -> None:
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


def test_metrics_describe_each_step(finished_run: Path) -> None:
    records = read_metrics(RunFolder(finished_run).metrics)
    assert [line["step"] for line in records] == list(range(1, 9))
    assert [line["tokens"] for line in records] == [8 * 16 * step for step in range(1, 9)]
    assert len({line["loops"] for line in records}) > 1
    assert len({line["batch_sha"] for line in records}) == 8
    for line in records:
        assert len(line["ce"]) == len(line["state_norm"]) == line["loops"] == line["backprop_loops"]
        assert all(math.isfinite(value) for value in [*line["ce"], *line["state_norm"], line["grad_norm"]])
        assert line["loss"] == pytest.approx(
            sum(line["ce"]) / line["loops"] + 0.01 * line["regularizers"]["norm_penalty"]
        )
        assert 0 < line["mfu"] < 1
    assert records[0]["lr"] == pytest.approx(5e-3)
    assert records[1]["lr"] == pytest.approx(1e-2)
    assert records[-1]["loss"] < records[0]["loss"]


def test_the_same_recipe_gives_the_same_bits(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    torch.randn(7)  # earlier use of the generators has no effect
    fit(recipe(), tmp_path / "again")
    assert_same_bits(finished_run, tmp_path / "again", 8)
    fit(recipe("seed=6"), tmp_path / "other")
    assert lines(finished_run) != lines(tmp_path / "other")


def test_evaluation_does_not_change_training(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    fit(recipe("evaluate.every=2"), tmp_path / "often")
    assert len(list((tmp_path / "often" / "eval").iterdir())) == 4
    assert_same_bits(finished_run, tmp_path / "often", 8)


@pytest.mark.parametrize("per", ["step", "sequence"])
def test_metrics_do_not_depend_on_micro_batch(recipe: Maker, tmp_path: Path, per: str) -> None:
    """This includes dropout, whose masks depend on the sample."""
    for micro in (8, 2, 1):
        fit(recipe("train.steps=2", f"train.loops_per={per}", f"train.micro_batch={micro}"), tmp_path / str(micro))
    finished_run = lines(tmp_path / "8")
    for micro in (2, 1):
        for record, expected in zip(lines(tmp_path / str(micro)), finished_run, strict=True):
            for key in expected:
                if isinstance(expected[key], dict | list | float):
                    assert record[key] == pytest.approx(expected[key], rel=1e-4), key
                else:
                    assert record[key] == expected[key], key


def test_empty_evaluation_writes_no_result(recipe: Maker, tmp_path: Path) -> None:
    fit(recipe("evaluate.tasks.perplexity=false"), tmp_path / "run")
    assert not any((tmp_path / "run" / "eval").iterdir())


def test_generation_may_be_deferred_to_eval(recipe: Maker, tmp_path: Path) -> None:
    tasks = "evaluate.tasks={perplexity: {}, gsm8k: {type: math, path: nowhere.jsonl}}"
    eval_only = recipe("train.steps=1", tasks, "evaluate.generation=eval")
    fit(eval_only, tmp_path / "run")
    (file,) = RunFolder(tmp_path / "run").evaluations.iterdir()
    assert "loss" in json.loads(file.read_text())["depths"][0]
    assert "gsm8k" not in file.read_text()
    assert has_evaluation(eval_only)
    assert not has_evaluation(
        recipe("evaluate.tasks={perplexity: false, math: {path: nowhere.jsonl}}", "evaluate.generation=eval")
    )
    with pytest.raises(UserError, match=r"nowhere\.jsonl does not exist"):
        fit(recipe("train.steps=1", tasks), tmp_path / "always")


def test_metrics_may_be_logged_every_few_steps(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    fit(recipe("train.log_every=3"), tmp_path / "rare")
    every, some = lines(finished_run), lines(tmp_path / "rare")
    assert [line["step"] for line in some] == [3, 6, 8]
    assert some == [every[2], every[5], every[7]]


def test_existing_run_is_refused_before_reading_data(recipe: Maker, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    nowhere = f"data.source.path={tmp_path / 'nowhere'}"
    with pytest.raises(RunExists, match=r"--resume.*--name"):
        fit(recipe(nowhere), tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())


def test_invalid_recipe_creates_no_folder(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no parameter matches 'gate\.\*'"):
        fit(recipe('train.trainable=["gate.*"]'), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_trainable_parameters_change(recipe: Maker, tmp_path: Path) -> None:
    fit(recipe("train.steps=1"), tmp_path / "first")
    start = f"train.start_from={tmp_path / 'first'}"
    fit(recipe("train.steps=2", start, 'train.trainable=["core.*"]'), tmp_path / "second")
    before, after = tensors(tmp_path / "first", 1), tensors(tmp_path / "second", 2)
    for name in after:
        kind, _, parameter = name.partition(":")
        if kind == "weights":
            assert before[name].equal(after[name]) is not parameter.startswith("core."), name
    assert all(name.startswith("optimizer:model.core.") for name in after if name.startswith("optimizer"))


def test_start_from_needs_run_or_checkpoint(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"neither a run nor a checkpoint"):
        fit(recipe(f"train.start_from={tmp_path}"), tmp_path / "run")


def test_non_finite_state_stops_before_the_update(
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
    newest, damaged = newest_checkpoint(folder.checkpoints)
    assert (newest.step, newest.path, damaged) == (3, stopped.value.checkpoint, [])
    assert all(value.isfinite().all() for name, value in tensors(folder.path, 3).items() if "weights" in name)
    assert len(read_metrics(folder.metrics)) == 4
    assert read_provenance(folder.provenance)["sessions"][0]["status"] == "failed"


def test_non_finite_weights_are_never_saved(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match=r"step 3: a weight is not finite; the last good checkpoint is .*00\."):
        fit(recipe("train.lr={type: constant, peak: 1e38}", "train.log_every=8"), tmp_path / "run")
    assert [c.step for c in checkpoints(RunFolder(tmp_path / "run").checkpoints)] == [0]


def test_console_shows_progress_without_deepspeed_output(
    recipe: Maker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = io.StringIO()
    fit(recipe(), tmp_path / "run", console=Console(file=shown))
    assert "step 8/8  loss" in shown.getvalue()
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""


def test_resume_of_a_missing_run_is_refused(recipe: Maker, tmp_path: Path) -> None:
    with pytest.raises(CheckpointProblem, match="there is no checkpoint"):
        fit(recipe(), tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_run_in_training_cannot_be_resumed(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with held(RunFolder(tmp_path / "run")), pytest.raises(RunBusy, match="another process is training"):
        fit(recipe("train.steps=9"), tmp_path / "run", resume=True)
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before | {tmp_path / "run" / LOCK: b""}


def test_initial_files_list_covers_uncheckpointed_runs(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointPolicy, "save", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError, match="killed"):
        fit(recipe(), tmp_path / "run")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert LOCK in left
    assert left <= INITIAL_FILES
