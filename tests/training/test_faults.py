"""Kills, full disks, damaged and malicious checkpoints: nothing is lost but the steps since the last checkpoint."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from loopkit.runs import Checkpoint, CheckpointProblem, RunFolder, checkpoints, newest_checkpoint, read_provenance
from loopkit.runs.checkpoint import publish_checkpoint
from loopkit.training.checkpointing import checkpoint as saving
from loopkit.training.errors import WriteFailed
from loopkit.training.evaluation_hook import EvaluationHook
from tests.training.conftest import Maker
from tests.training.runs import assert_same_bits, fit, lines

FILES = {
    *("manifest.json", "weights.safetensors", "optimizer.safetensors", "generators-00000.safetensors"),
    *("state.json", "resolved.yaml"),
}


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": truncate,
    "emptied": lambda path: path.write_bytes(b""),
    "bit flipped": flip,
    "removed": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_detected_and_named(finished_run: Path, tmp_path: Path, damage: str) -> None:
    there = RunFolder(finished_run).checkpoint(8)
    files = sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file())
    assert set(files) > FILES
    for name in files:
        run = tmp_path / name.replace("/", "-")
        for step in (6, 8):
            shutil.copytree(RunFolder(finished_run).checkpoint(step), RunFolder(run).checkpoint(step))
        hurt = RunFolder(run).checkpoint(8) / name
        DAMAGES[damage](hurt)
        newest, problems = newest_checkpoint(RunFolder(run).checkpoints)
        assert newest.step == 6
        assert len(problems) == 1
        assert str(hurt) in problems[0]
        shutil.rmtree(newest.path)
        with pytest.raises(CheckpointProblem) as refused:  # never a fresh start
            newest_checkpoint(RunFolder(run).checkpoints)
        assert str(hurt) in str(refused.value)


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("name", ["weights", "optimizer", "generators-00000", "state.json"])
def test_pickle_in_a_checkpoint_is_never_executed(recipe: Maker, finished_run: Path, tmp_path: Path, name: str) -> None:
    """This includes a file with a correct checksum, as an attacker would write it."""
    shutil.copytree(finished_run, tmp_path / "run")
    folder, sign = RunFolder(tmp_path / "run"), tmp_path / "executed"
    bad = folder.checkpoints / "bad"
    folder.checkpoint(8).rename(bad)
    (bad / "manifest.json").unlink()
    file = name if "." in name else f"{name}.safetensors"
    torch.save({"x": Payload(sign)}, bad / file) if name == "weights" else (bad / file).write_bytes(
        pickle.dumps(Payload(sign))
    )
    publish_checkpoint(bad, 8)
    with pytest.raises(ValueError, match=file.replace(".", r"\.")):
        fit(recipe(), folder.path, resume=True)
    assert not sign.exists()
    pickle.loads(pickle.dumps(Payload(sign)))
    assert sign.exists()  # unpickling it would have created the file


def test_deepspeed_loads_only_safe_pickles(recipe: Maker, tmp_path: Path) -> None:
    fit(recipe("train.steps=1"), tmp_path / "run")  # training restricts unpickling in this process
    torch.save(Payload(tmp_path / "executed"), tmp_path / "file.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "file.pt")
    with pytest.raises(Exception, match="weights_only"):
        torch.load(tmp_path / "file.pt", weights_only=False)
    assert not (tmp_path / "executed").exists()


def test_foreign_file_in_checkpoint_is_not_read(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    shutil.rmtree(folder.checkpoint(8))
    (folder.checkpoint(6) / "objective.safetensors").write_bytes(pickle.dumps(Payload(tmp_path / "executed")))
    fit(recipe(), folder.path, resume=True)
    assert_same_bits(finished_run, folder.path, 8)


@pytest.mark.parametrize("state", [[], {}, {"step": 8}, {"step": 8, "data": 3}])
def test_incomplete_state_is_named(tmp_path: Path, state: Any) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointProblem, match=r"state\.json does not contain the state of a run"):
        saving.read_state(Checkpoint(tmp_path, 8))


def test_checkpoint_exists_before_the_first_step(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loopkit.training.trainer import Trainer

    def step(self: Trainer, *_: Any) -> bool:
        newest, damaged = newest_checkpoint(self.folder.checkpoints)
        assert (newest.step, damaged) == (0, [])
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe(), tmp_path / "run")


def test_checkpoint_is_written_before_the_evaluation(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: EvaluationHook, step: int, *shared: object) -> None:
        assert newest_checkpoint(self.folder.checkpoints)[0].step == step
        raise ZeroDivisionError

    monkeypatch.setattr(EvaluationHook, "_evaluate", fails)
    with pytest.raises(ZeroDivisionError):
        fit(recipe("evaluate.every=3"), tmp_path / "run")


def test_best_checkpoint_is_retained(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint with the lowest loss (step 4) is retained when newer ones are removed."""
    losses = {2: 3.0, 4: 1.0, 6: 2.0, 8: 1.5}

    def evaluate(self: EvaluationHook, step: int, *shared: object) -> None:
        rows = [{"depth": 1, "loss": losses[step], "trained": True}]
        (self.folder.evaluations / f"step-{step:08d}-validation-0.json").write_text(json.dumps({"depths": rows}))

    monkeypatch.setattr(EvaluationHook, "_evaluate", evaluate)
    resolved = recipe("evaluate.every=2", "train.checkpoint={every: null, keep: 1, best: loss}")
    fit(resolved, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert [newest.step for newest in checkpoints(folder.checkpoints)] == [4, 8]
    best = json.loads((folder.checkpoints / "best.json").read_text())
    assert best == {"step": 4, "figure": "loss", "depth": 1, "value": 1.0}
    losses[8] = 0.5
    shutil.rmtree(folder.checkpoint(8))
    fit(resolved, tmp_path / "run", resume=True)  # resumes from the best checkpoint and improves on it
    assert [newest.step for newest in checkpoints(folder.checkpoints)] == [8]


def limited(monkeypatch: pytest.MonkeyPatch, step: int, size: int) -> None:
    """Make the system refuse files above a size, starting with the checkpoint of a step."""
    real = saving.begin_checkpoint

    def begin(folder: Path, at: int) -> Path:
        if at == step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return real(folder, at)

    monkeypatch.setattr(saving, "begin_checkpoint", begin)


@pytest.mark.parametrize("size", [0, 100, 3000])
def test_failed_write_keeps_the_older_checkpoint(
    recipe: Maker, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with monkeypatch.context() as patched:
            limited(patched, 6, size)
            with pytest.raises(
                WriteFailed, match=r"after step 6 the checkpoint could not be written: .*00000003"
            ) as ended:
                fit(recipe(), tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder = RunFolder(tmp_path / "run")
    assert (ended.value.exit_code, ended.value.checkpoint) == (5, folder.checkpoint(3))
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["step-00000000", "step-00000003"]
    fit(recipe(), tmp_path / "run", resume=True)
    assert_same_bits(finished_run, tmp_path / "run", 8)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EDQUOT, "Quota")])
def test_every_full_disk_error_is_named(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    from loopkit.runs.metrics import MetricsLog

    real = MetricsLog.write

    def write(self: MetricsLog, record: Any) -> None:
        if record["step"] == 5:
            raise error
        real(self, record)

    monkeypatch.setattr(MetricsLog, "write", write)
    with pytest.raises(WriteFailed, match=r"the disk is full .*; the last good checkpoint is .*00000003") as ended:
        fit(recipe(), tmp_path / "run")
    assert ended.value.exit_code == 5
    assert read_provenance(RunFolder(tmp_path / "run").provenance)["sessions"][0]["status"] == "failed"


@pytest.mark.e2e
def test_full_file_system_is_reported(recipe_file: Path, finished_run: Path, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this system lets no user mount a file system of its own")
    first, later = (
        sum(path.stat().st_blocks * 512 for path in RunFolder(finished_run).checkpoint(step).rglob("*"))
        for step in (0, 3)
    )
    disk = tmp_path / "disk"
    disk.mkdir()
    train = f"{sys.executable} -m loopkit train {recipe_file} --runs {disk} --name run --set train.checkpoint.keep=1"
    script = f"""
mount -t tmpfs -o size={first + later // 2 + 40_000} none {disk} || exit 99
{train}
code=$?
ls -a {disk}/run/checkpoints
exit $code
"""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=300)
    if done.returncode == 99:
        pytest.skip("this system lets no user mount a file system of its own")
    assert done.returncode == 5, done.stderr
    assert "the disk is full" in done.stderr
    assert "--resume" in done.stderr
    assert done.stdout.split() == [".", "..", "step-00000000"]


@pytest.mark.e2e
def test_repeatedly_killed_run_is_bitwise_exact(recipe_file: Path, tmp_path: Path) -> None:
    from tests.training.processes import study

    seen = study(recipe_file, tmp_path, kills=6, writing=2, seed=1)
    assert seen.kills >= 6
    assert seen.writing >= 2
    assert seen.runs >= 1


@pytest.mark.slow
def test_hundred_kills_are_bitwise_exact(recipe_file: Path, tmp_path: Path) -> None:
    from tests.training.processes import study

    seen = study(recipe_file, tmp_path, kills=100, writing=30)
    assert seen.writing >= 30


@pytest.mark.e2e
def test_runs_move_between_one_and_two_ranks(recipe_file: Path, tmp_path: Path) -> None:
    from tests.training.processes import finish, start

    one, two = (), ("train.deepspeed={zero_optimization: {stage: 2}}",)
    # the learning rate depends on the length of the run, so both runs are complete and lose their later checkpoints
    assert finish(start(recipe_file, tmp_path / "one", *one)) == [0]
    assert finish(start(recipe_file, tmp_path / "two", *two, ranks=2)) == [0, 0]
    expected = [line["loss"] for line in lines(tmp_path / "one")]
    assert [line["loss"] for line in lines(tmp_path / "two")] == pytest.approx(expected, abs=1e-5)
    for name, overrides, ranks in (("two", one, 1), ("one", two, 2)):
        for step in (6, 8):
            shutil.rmtree(RunFolder(tmp_path / name).checkpoint(step))
        codes = finish(start(recipe_file, tmp_path / name, *overrides, resume=True, ranks=ranks))
        assert codes == [0] * ranks
        assert [line["step"] for line in lines(tmp_path / name)] == list(range(1, 9))
        assert [line["loss"] for line in lines(tmp_path / name)] == pytest.approx(expected, abs=1e-5)
        sessions = read_provenance(RunFolder(tmp_path / name).provenance)["sessions"]
        assert [(session["ranks"], session["from_step"]) for session in sessions] == [(3 - ranks, 0), (ranks, 3)]
