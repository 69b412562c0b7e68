"""``loopkit audit``: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.cli.audit import is_run
from loopkit.recipe import load_recipe

SMALL = ("--profile", "smoke", "--set", "objective.supervision=terminal")


def run(*words: str, code: int = 0) -> str:
    """Run a command; return its output and errors."""
    result = CliRunner().invoke(main, ["audit", *words], prog_name="loopkit")
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_output_has_verdicts_measurements_and_remedies() -> None:
    text = run("wikitext_44m_norm", *SMALL)
    positions = [
        text.index(part) for part in ("scale: blind spot", "recurrence: unknown until trained", "radial fraction,")
    ]
    assert positions == sorted(positions)
    assert "set model.readout to raw" in text[positions[-1] :]
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "what to change  nothing" in run("wikitext_44m_raw", *SMALL)


def test_json_has_every_measurement() -> None:
    record = json.loads(run("wikitext_44m_norm", *SMALL, "--json"))
    assert record["scale"]["verdict"] == "blind spot"
    assert set(record["scale"]["readouts"][0]["fraction"]) == {"1", "10", "100"}
    assert record["recurrence"]["verdict"] == "unknown until trained"
    assert record["remedies"]["objective.regularizers"]


def test_exit_codes() -> None:
    run("wikitext_44m_norm", *SMALL, "--strict", code=1)
    run("wikitext_44m_raw", *SMALL, "--strict")
    assert "no readout is called 'rw'" in run("wikitext_44m_raw", "--set", "model.readout=rw", code=2)
    assert "no recipe is called 'nowhere'" in run("nowhere", code=2)
    assert "is a recipe" in run("wikitext_44m_raw", "--step", "3", code=2)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of runs without checkpoints; one has the name of a recipe."""
    for name in ("mine", "wikitext_44m_raw"):
        folder = tmp_path / name
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "resolved.yaml").write_text(load_recipe("wikitext_44m_raw").to_yaml())
    return tmp_path


def test_a_recipe_takes_precedence_over_a_run(runs: Path) -> None:
    assert is_run("mine", runs)
    assert not is_run("wikitext_44m_raw", runs)
    assert is_run(str(runs / "wikitext_44m_raw"), runs)
    assert not is_run("wikitext_44m_norm", runs)


def test_a_run_takes_no_overrides(runs: Path) -> None:
    assert "there is no checkpoint" in run("mine", "--runs", str(runs), "--device", "cpu", code=2)
    assert "use --profile and --set only with a recipe" in run("mine", "--runs", str(runs), "--set", "seed=1", code=2)
