"""``loopkit migrate``: recipe files rewritten in place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.exit_codes import ExitCode

ORIGINAL = Path(__file__).parents[1] / "recipe" / "migration" / "format_1" / "parcae_small.yaml"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return Path(shutil.copy(ORIGINAL, tmp_path / "mine.yaml"))


def test_check_prints_changes_and_writes_nothing(recipe: Path) -> None:
    before = recipe.read_text()
    result = CliRunner().invoke(main, ["migrate", "--check", str(recipe)])
    assert result.exit_code == ExitCode.FAILED
    assert f"{recipe}:2\n- loopkit: 1\n+ loopkit: 2\n" in result.output
    assert recipe.read_text() == before


def test_files_are_rewritten_once(recipe: Path) -> None:
    result = CliRunner().invoke(main, ["migrate", str(recipe)])
    assert (result.exit_code, result.output) == (0, f"{recipe}: 4 lines changed\n")
    assert "truncate: 3" in recipe.read_text()
    assert CliRunner().invoke(main, ["migrate", str(recipe)]).output == f"{recipe}: is already in format 2\n"
    assert CliRunner().invoke(main, ["migrate", "--check", str(recipe)]).exit_code == 0


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["migrate", str(tmp_path / "gone.yaml")])
    assert result.exit_code == ExitCode.USER_ERROR
    assert "there is no such file" in result.output
