"""Results of ``loopkit eval``: a failed write does not lose them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import loopkit
from loopkit.cli import main
from loopkit.errors import FileError
from loopkit.interop import import_folder
from loopkit.runs import RunFolder
from tests.interop.folders import tensors, write


@pytest.fixture
def run(tmp_path: Path) -> Path:
    import_folder(write(tmp_path / "ouro", tensors(torch.float32)), RunFolder(tmp_path / "run"), tokenizer="bytes")
    return tmp_path / "run"


def evaluate(run: Path, *words: str) -> Result:
    command = ["eval", str(run), "--max-tokens", "400", "--device", "cpu", "--dtype", "fp32", *words]
    return CliRunner().invoke(main, command)


def test_weights_that_are_not_finite_are_evaluated(tmp_path: Path) -> None:
    weights = {name: value * float("nan") for name, value in tensors(torch.float32).items()}
    import_folder(write(tmp_path / "ouro", weights), RunFolder(tmp_path / "run"), tokenizer="bytes")
    result = evaluate(tmp_path / "run", "--depths", "1,2", "--set", "evaluate.probes={norms: {}, scale_sweep: {}}")
    assert result.exit_code == 0, result.output
    assert result.output.count("not finite") >= 4
    (file,) = (tmp_path / "run" / "eval").glob("*.json")
    rows = json.loads(file.read_text())["depths"]
    assert all({"loss", "token_ppl", "state_norm.mean"} <= set(row["not_finite"]) for row in rows)
    assert "not finite" in (tmp_path / "run" / "report.md").read_text()


@pytest.mark.parametrize("place", ["eval", "plots"])
def test_an_unwritable_run_is_refused_first(place: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in place of a folder stands for a read-only one, because root may write to any folder."""

    def opened(*words: Any, **options: Any) -> None:
        raise AssertionError("the run was opened before its folder was checked")

    if (run / place).is_dir():
        (run / place).rmdir()
    (run / place).write_text("")
    monkeypatch.setattr("loopkit.evaluation.trained_run.open_run", opened)
    result = evaluate(run)
    assert result.exit_code == 2
    assert f"{run / place}: no file can be written there" in result.output
    assert "--no-write" in result.output


def test_no_write_does_not_change_the_run(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    result = evaluate(run, "--depths", "1", "--no-write", "--json")
    assert json.loads(result.stdout)["depths"][0]["loss"] > 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize("failing", ["write_result", "write_report"])
def test_results_are_printed_before_a_failing_write(failing: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*words: Any) -> None:
        raise FileError("run cannot be written: no space left on device; free some space")

    package = "loopkit.evaluation.evaluate_run" if failing == "write_result" else "loopkit.report"
    monkeypatch.setattr(f"{package}.{failing}", fails)
    result = evaluate(run, "--depths", "1")
    assert result.exit_code == 2
    assert "bits/byte" in result.stdout
    assert "no space left on device" in result.output
    assert len(list((run / "eval").glob("*.json"))) == (failing == "write_report")


def test_command_and_python_write_equal_results(run: Path) -> None:
    result = evaluate(run, "--depths", "1,2", "--json")
    assert result.exit_code == 0, result.output
    (file,) = (run / "eval").glob("*.json")
    file.unlink()
    from_python = loopkit.evaluate(run, depths="1-2", overrides=["evaluate.max_tokens=400"], dtype="fp32").to_json()
    assert json.loads(result.stdout) == json.loads(file.read_text()) == from_python
