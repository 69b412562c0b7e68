"""``loopkit eval --nproc``: starting ranks, and the errors that come before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loopkit.cli.main import main
from loopkit.training.distributed import launch


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int, str]]:
    """The calls of a launcher that starts nothing."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", launch.LAUNCHED):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "resolved.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    calls: list[tuple[list[str], int, str]] = []

    def launcher(words: Any, ranks: int, *, remedy: str) -> int:
        calls.append((list(words), ranks, remedy))
        return 3

    monkeypatch.setattr(launch, "launch", launcher)
    monkeypatch.setattr("sys.argv", ["loopkit", "eval", "mine", "--nproc", "2"])
    return calls


def test_ranks_get_the_command_line(started: list[tuple[list[str], int, str]]) -> None:
    assert CliRunner().invoke(main, ["eval", "mine", "--nproc", "2"]).exit_code == 3
    ((words, ranks, remedy),) = started
    assert (words, ranks) == (["eval", "mine", "--nproc", "2"], 2)
    assert "--resume" not in remedy


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["yours"], "no run is named 'yours'; runs in runs: mine"),
        (["mine", "--depths", "0"], "depths start at 1"),
        (["mine", "--set", "model.width=3"], "of a trained run can be set"),
    ],
)
def test_errors_are_reported_before_ranks_start(
    started: list[tuple[list[str], int, str]], words: list[str], message: str
) -> None:
    result = CliRunner().invoke(main, ["eval", *words, "--nproc", "2"])
    assert result.exit_code == 2
    assert message in result.output
    assert started == []


def test_a_nested_launcher_is_refused(
    started: list[tuple[list[str], int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(main, ["eval", "mine", "--nproc", "2"])
    assert result.exit_code == 2
    assert "has already started them; omit --nproc" in result.output
    assert started == []
