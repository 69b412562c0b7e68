"""Ranks that are killed or lose their connections: exactly one message at every stage of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.exit_codes import ExitCode
from loopkit.training.distributed.launch import launch
from tests.training.broken_ranks import STAGES

FAST = [("first step", "sever", "1")]
"""The fast cases: both ranks lose their connections, and none is killed."""
ALL = [(stage, how, ranks) for stage in STAGES for how in ("kill", "sever") for ranks in ("0", "1", "01")]


def check_one_message(
    broken: tuple[str, str, str], recipe_file: Path, capfd: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
) -> None:
    stage, how, ranks = broken
    folder = recipe_file.parent
    for name, value in {"BREAK": ":".join(broken), "LOOPKIT_CACHE": str(folder / "cache")}.items():
        patch.setenv(name, value)
    words = ["train", str(recipe_file), "--nproc", "2", "--runs", str(folder / "runs"), "--name", "-".join(broken)]
    words[-1] = words[-1].replace(" ", "_")
    words += ["--set", "train.steps=3", "--set", "evaluate.every=2"]
    code = launch(words, 2, ["-m", "tests.training.broken_ranks"])
    text = capfd.readouterr().err
    errors = [line for line in text.splitlines() if line.startswith("error:")]
    if how == "sever" and stage == "end" and code == ExitCode.DONE:  # no communication remains
        assert errors == []
        return
    assert code == (ExitCode.KILLED if how == "kill" else ExitCode.LOST), text
    assert len(errors) == 1, text
    assert "Traceback" not in text
    assert ("was killed by SIGKILL" in errors[0]) == (how == "kill"), text
    assert any(f"rank {rank} " in errors[0] for rank in (ranks if how == "kill" else "01")), text


@pytest.mark.parametrize("broken", FAST, ids="-".join)
def test_ranks_that_lose_contact_report_it(
    broken: tuple[str, str, str], recipe_file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_one_message(broken, recipe_file, capfd, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [case for case in ALL if case not in FAST], ids="-".join)
def test_each_failure_at_each_stage_has_one_message(
    broken: tuple[str, str, str], recipe_file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_one_message(broken, recipe_file, capfd, monkeypatch)
