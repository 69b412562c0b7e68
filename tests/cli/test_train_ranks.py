"""``loopkit train --nproc``: starting ranks, and the errors that come before."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli.main import main
from loopkit.training.distributed import launch
from tests.recipe.conftest import BASE


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int]]:
    """The calls of a launcher that starts nothing."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", launch.LAUNCHED):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mine.yaml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    calls: list[tuple[list[str], int]] = []
    monkeypatch.setattr(launch, "launch", lambda words, ranks: calls.append((list(words), ranks)) or 3)
    monkeypatch.setattr("sys.argv", ["loopkit", "train", "mine.yaml", "--nproc", "2"])
    return calls


def test_ranks_get_the_command_line(started: list[tuple[list[str], int]]) -> None:
    result = CliRunner().invoke(main, ["train", "mine.yaml", "--nproc", "2"])
    assert result.exit_code == 3  # the code of the failed rank
    assert started == [(["train", "mine.yaml", "--nproc", "2"], 2)]


def test_errors_are_reported_before_ranks_start(started: list[tuple[list[str], int]]) -> None:
    result = CliRunner().invoke(main, ["train", "mine.yaml", "--nproc", "2", "--set", "seed=x"])
    assert result.exit_code == 2
    assert "seed: must be an integer" in result.output
    assert started == []


def test_a_nested_launcher_is_refused(started: list[tuple[list[str], int]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(main, ["train", "mine.yaml", "--nproc", "2"])
    assert result.exit_code == 2
    assert "a launcher (torchrun, deepspeed, srun) has already started them; omit --nproc" in result.output
    assert started == []


def test_one_rank_per_machine_reports_recipe_errors(
    started: list[tuple[list[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    output = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        result = CliRunner().invoke(main, ["train", "mine.yaml", "--set", "seed=x"])
        assert result.exit_code == 2
        output[rank] = result.output
    assert "seed: must be an integer" in output["0"]
    assert output["1"] == ""
