"""Run folders are made once, and found by path, by name or by age."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopkit.runs.folder import NoRun, RunExists, RunFolder, check_name, run_name


def make(root: Path, name: str, age: float) -> RunFolder:
    run = RunFolder(root / name).create()
    run.resolved.write_text("loopkit: 2\n")
    os.utime(run.resolved, (age, age))
    return run


def test_existing_folder_is_rejected_with_two_remedies(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "runs" / "mini").create()
    assert run.checkpoints.is_dir()
    (run.path / "note").write_text("mine")
    with pytest.raises(RunExists, match=r"already exists.*--resume.*--name"):
        RunFolder(tmp_path / "runs" / "mini").create()
    assert (run.path / "note").read_text() == "mine"


def test_runs_are_found_by_path_and_by_name(tmp_path: Path) -> None:
    make(tmp_path, "a", 1)
    assert RunFolder.open(tmp_path / "a").name == "a"
    assert RunFolder.open("a", tmp_path).path == tmp_path / "a"
    with pytest.raises(NoRun, match=r"no run is named 'b'; runs in .*: a"):
        RunFolder.open("b", tmp_path)


def test_without_a_name_the_newest_is_taken(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match="loopkit train"):
        RunFolder.open(None, tmp_path / "absent")
    make(tmp_path, "b", 2000)
    make(tmp_path, "a", 1000)
    (tmp_path / "stray").mkdir()
    assert RunFolder.open(None, tmp_path).name == "b"
    metrics = RunFolder.open("a", tmp_path).metrics
    metrics.touch()  # trained on after b
    assert RunFolder.open(None, tmp_path).name == "a"


def test_names_derive_from_recipe_and_overrides() -> None:
    assert run_name("wikitext_44m_raw-mini") == "wikitext_44m_raw-mini"
    assert run_name("wikitext_44m_raw", "0123456789ab") == "wikitext_44m_raw-01234567"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", ".hidden"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="--name"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "raw-seed101", "v1.2", "_x"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert check_name(name) == name
