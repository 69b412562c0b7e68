"""``loopkit train --nproc``: who starts ranks, and who must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli.main import main
from loopkit.training.distributed import launch
from tests.recipe.conftest import BASE


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int]]:
    """What the launcher was asked for; it starts nothing."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", launch.LAUNCHED):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mine.yaml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    calls: list[tuple[list[str], int]] = []
    monkeypatch.setattr(launch, "launch", lambda words, ranks: calls.append((list(words), ranks)) or 3)
    monkeypatch.setattr("sys.argv", ["loopkit", "train", "mine.yaml", "--nproc", "2"])
    return calls


def test_ranks_get_the_words_of_the_command(started: list[tuple[list[str], int]]) -> None:
    done = CliRunner().invoke(main, ["train", "mine.yaml", "--nproc", "2"])
    assert done.exit_code == 3  # that of the rank that failed
    assert started == [(["train", "mine.yaml", "--nproc", "2"], 2)]


def test_what_is_wrong_is_said_once_before_any_rank_starts(started: list[tuple[list[str], int]]) -> None:
    done = CliRunner().invoke(main, ["train", "mine.yaml", "--nproc", "2", "--set", "seed=x"])
    assert done.exit_code == 2
    assert "seed: must be an integer" in done.output
    assert started == []


def test_a_launcher_inside_of_a_launcher_is_refused(
    started: list[tuple[list[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(main, ["train", "mine.yaml", "--nproc", "2"])
    assert done.exit_code == 2
    assert "a launcher (torchrun, deepspeed, srun) has already; leave it out" in done.output
    assert started == []


def test_of_the_ranks_of_a_machine_one_says_what_is_wrong_with_a_recipe(
    started: list[tuple[list[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        done = CliRunner().invoke(main, ["train", "mine.yaml", "--set", "seed=x"])
        assert done.exit_code == 2
        said[rank] = done.output
    assert "seed: must be an integer" in said["0"]
    assert said["1"] == ""
