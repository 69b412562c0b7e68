"""``loopkit audit``: what it prints, and its exit codes."""

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
    """Output and errors of a command."""
    result = CliRunner().invoke(main, ["audit", *words], prog_name="loopkit")
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_verdicts_then_figures_then_what_to_change() -> None:
    text = run("wikitext_44m_norm", *SMALL)
    places = [
        text.index(part) for part in ("scale: blind spot", "recurrence: unknown until trained", "radial fraction,")
    ]
    assert places == sorted(places)
    assert "set model.readout to raw" in text[places[-1] :]
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "what to change  nothing" in run("wikitext_44m_raw", *SMALL)


def test_json_has_every_figure() -> None:
    found = json.loads(run("wikitext_44m_norm", *SMALL, "--json"))
    assert found["scale"]["verdict"] == "blind spot"
    assert set(found["scale"]["readouts"][0]["fraction"]) == {"1", "10", "100"}
    assert found["recurrence"]["verdict"] == "unknown until trained"
    assert found["remedies"]["objective.regularizers"]


def test_exit_codes() -> None:
    run("wikitext_44m_norm", *SMALL, "--strict", code=1)
    run("wikitext_44m_raw", *SMALL, "--strict")
    assert "no readout is called 'rw'" in run("wikitext_44m_raw", "--set", "model.readout=rw", code=2)
    assert "no recipe is called 'nowhere'" in run("nowhere", code=2)
    assert "is a recipe" in run("wikitext_44m_raw", "--step", "3", code=2)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of runs, one with a recipe's name; none has a checkpoint."""
    for name in ("mine", "wikitext_44m_raw"):
        folder = tmp_path / name
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "resolved.yaml").write_text(load_recipe("wikitext_44m_raw").to_yaml())
    return tmp_path


def test_a_name_that_both_have_means_the_recipe(runs: Path) -> None:
    assert is_run("mine", runs)
    assert not is_run("wikitext_44m_raw", runs)
    assert is_run(str(runs / "wikitext_44m_raw"), runs)
    assert not is_run("wikitext_44m_norm", runs)


def test_a_run_is_not_changed(runs: Path) -> None:
    assert "there is no checkpoint" in run("mine", "--runs", str(runs), "--device", "cpu", code=2)
    assert "--profile and --set belong to recipes" in run("mine", "--runs", str(runs), "--set", "seed=1", code=2)
