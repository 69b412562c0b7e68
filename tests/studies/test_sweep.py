"""Running sweeps: missing points are trained, failures reported, and finished points skipped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loopkit.cli.main import main
from loopkit.recipe.sweep import load_sweep
from loopkit.report.tables.sweep import sweep_markdown
from loopkit.runs import RunFolder
from loopkit.studies import runs as runs_module
from loopkit.studies.runs import PlannedRun
from loopkit.studies.sweep import SweepRuns, run_sweep
from tests.recipe.conftest import BASE

SWEEP = "sweep: {grid: {train.lr.peak: [1e-3, 2e-3]}, seeds: [1, 2]}\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(BASE + SWEEP)
    return tmp_path / "mine.yaml"


class Training:
    """Replace ``loopkit train``: write the files of a run and end with a given exit code.

    Args:
        codes: Exit codes by run; 0 if it is not named.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, codes: dict[str, int] | None = None) -> None:
        self.codes, self.calls = codes or {}, []  # type: ignore[var-annotated]
        monkeypatch.setattr(runs_module.subprocess, "run", self.run)

    def run(self, words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        name, root = words[words.index("--name") + 1], Path(words[words.index("--runs") + 1])
        self.calls.append((name, "--resume" in words))
        code = self.codes.get(name, 0)
        (point,) = (point for point in load_sweep(words[words.index("train") + 1]) if point.name == name)
        leave(RunFolder(root / name), point.recipe.hash, "finished" if code == 0 else "failed", loss=point.recipe.seed)
        return subprocess.CompletedProcess(words, code)


def leave(folder: RunFolder, hash: str, status: str, loss: float, *, checkpoint: bool = True) -> None:
    """What a run leaves in its folder."""
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    if checkpoint:
        (folder.checkpoints / "step-00000004").mkdir(exist_ok=True)
    folder.provenance.write_text(json.dumps({"recipe_hash": hash, "sessions": [{"status": status}]}))
    folder.metrics.write_text(json.dumps({"step": 4, "tokens": 512, "loss": loss}) + "\n")


def sweep(recipe: Path) -> SweepRuns:
    return SweepRuns(load_sweep(recipe), (str(recipe),), recipe.parent / "runs")


def test_every_point_is_trained_once(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    result = run_sweep(sweep(recipe), lambda text: None)
    assert [row["status"] for row in result["points"]] == ["finished"] * 4
    assert [row["loss"] for row in result["points"]] == [1, 2, 1, 2]
    assert len({name for name, _ in training.calls}) == 4
    again = Training(monkeypatch)
    assert run_sweep(sweep(recipe), lambda text: None) == result
    assert again.calls == []


def test_failed_run_is_reported_and_retried(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = sweep(recipe).points[1].name
    Training(monkeypatch, {bad: 3})
    messages: list[str] = []
    result = run_sweep(sweep(recipe), messages.append)
    assert [row["status"] for row in result["points"]] == ["finished", "failed, exit code 3", "finished", "finished"]
    assert f"[2/4] training {bad} ended with exit code 3" in messages
    again = Training(monkeypatch)
    assert {row["status"] for row in run_sweep(sweep(recipe), messages.append)["points"]} == {"finished"}
    assert again.calls == [(bad, True)]


def test_an_interruption_ends_the_sweep(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, {sweep(recipe).points[1].name: 130})
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep(recipe), lambda text: None)
    assert len(training.calls) == 2


def test_run_without_checkpoint_starts_again(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run, *_) = sweep(recipe).runs()
    leave(run.folder, run.recipe.hash, "failed", 0.0, checkpoint=False)
    assert run.state == "missing"
    training = Training(monkeypatch)
    run_sweep(sweep(recipe), lambda text: None)
    assert training.calls[0] == (run.folder.name, False)


def test_a_folder_of_something_else_is_never_touched(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    run: PlannedRun = sweep(recipe).runs()[-1]
    leave(run.folder, "another", "finished", 0.0)
    with pytest.raises(ValueError, match="was trained with a different version of the recipe"):
        run_sweep(sweep(recipe), lambda text: None)
    (run.folder.path / "notes.txt").write_text("mine")
    run.folder.provenance.unlink()
    with pytest.raises((ValueError, OSError)):
        run_sweep(sweep(recipe), lambda text: None)
    assert training.calls == []  # reported before training starts
    assert (run.folder.path / "notes.txt").read_text() == "mine"


def test_the_command_and_its_table(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe.parent)
    listed = CliRunner().invoke(main, ["sweep", "mine.yaml", "--list"])
    assert listed.output.splitlines()[0] == "mine-peak_0.001-seed_1"
    assert not (recipe.parent / "runs").exists()
    Training(monkeypatch, {"mine-peak_0.002-seed_2": 3})
    done = CliRunner().invoke(main, ["sweep", "mine.yaml"])
    assert done.exit_code == 1
    assert "failed, exit code 3" in " ".join(done.output.split())
    result = json.loads((recipe.parent / "runs" / "mine.sweep.json").read_text())
    assert len(result["points"]) == 4
    assert (recipe.parent / "runs" / "mine.sweep.md").read_text().count("| 0.001 |") == 2


def test_seeds_are_averaged() -> None:
    rows = [
        {"run": f"r{s}", "values": {"model.readout": "raw", "seed": s}, "status": "finished", "step": 9, "loss": 1.0,
         "depths": [{"depth": 4, "token_ppl": value}]}
        for s, value in ((1, 10.0), (2, 14.0))
    ]  # fmt: skip
    text = sweep_markdown({"points": rows})
    assert "| model.readout=raw | 2 | 12 ± 2.8 |" in text.replace("readout=raw | 2", "readout=raw | 2")
