"""The launcher of ``--nproc``: one failure ends all ranks; the error of the first is shown."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode
from loopkit.training.distributed import launch as module
from loopkit.training.distributed.launch import environments, launch, under_launcher

WAIT = "time.sleep(60); print('waited to the end', file=sys.stderr)"


def ranks(*codes: str) -> list[str]:
    """A program in which each rank runs its own code."""
    return ["-c", f"import os, sys, signal, time\nexec({list(codes)!r}[int(os.environ['RANK'])])"]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 2.0)


def test_rank_variables_match_torchrun() -> None:
    rank_variables = list(environments(3))
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"]) for e in rank_variables] == [
        (str(n), str(n), "3") for n in range(3)
    ]
    assert len({e["MASTER_PORT"] for e in rank_variables}) == 1
    assert all(under_launcher(e) for e in rank_variables)


@pytest.mark.parametrize("alone", [{}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}, {"RANK": "0"}])
def test_one_rank_needs_no_launcher(alone: dict[str, str]) -> None:
    assert not under_launcher(alone)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_incomplete_rank_variables_are_refused(name: str) -> None:
    variables = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert under_launcher(variables)
    part = {key: value for key, value in variables.items() if key != name} | (
        {name: "two"} if name == "WORLD_SIZE" else {}
    )
    with pytest.raises(UserError, match=rf"{name} is (not set|'two').*; start them with --nproc or torchrun"):
        under_launcher(part)


def test_successful_ranks_give_exit_code_zero(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch((), 2, ranks("print('I am first')", "print('I am not')")) == 0
    output = capfd.readouterr()
    assert output.out == "I am first\n"
    assert output.err == ""


def test_failing_rank_is_reported_and_others_ended(capfd: pytest.CaptureFixture[str]) -> None:
    fails = "print('error: rank 1 on here: no space left', file=sys.stderr); sys.exit(2)"
    assert launch((), 3, ranks(WAIT, fails, WAIT)) == 2
    assert capfd.readouterr().err == "error: rank 1 on here: no space left\n"


def test_rank_that_lost_a_peer_is_not_blamed(capfd: pytest.CaptureFixture[str]) -> None:
    lost = f"print('lost'); sys.exit({ExitCode.LOST})"
    late = "time.sleep(0.4); print('error: the cause', file=sys.stderr); sys.exit(3)"
    assert launch((), 2, ranks(lost, late)) == 3
    assert capfd.readouterr().err == "error: the cause\n"


def test_killed_rank_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch((), 2, ranks(f"time.sleep(0.3); sys.exit({ExitCode.LOST})", "os.kill(os.getpid(), 9)")) == 137
    output = capfd.readouterr().err
    assert output.startswith("error: rank 1 was killed by SIGKILL (probably out of memory)")
    assert output.count("\n") == 1
    assert "--resume" in output


LOST = """
from loopkit.training.distributed.launch import leave_message
leave_message(f"error: rank {os.environ['RANK']} lost another rank")
sys.exit(7)
"""
CAUSE = """
from loopkit.training.distributed.launch import claim_report
if claim_report():
    print(f"error: rank {os.environ['RANK']}: the cause", file=sys.stderr)
sys.exit(2)
"""


@pytest.mark.parametrize(
    ("programs", "code", "message"),
    [
        ((LOST, LOST), 7, "error: rank 0 lost another rank\n"),
        ((LOST, "time.sleep(0.3)" + CAUSE), 2, "error: rank 1: the cause\n"),
        ((CAUSE, CAUSE), 2, r"error: rank [01]: the cause\n"),
        ((CAUSE, "os.kill(os.getpid(), 9)"), (2, 137), "error: rank .*\n"),
        ((LOST, "os._exit(1)"), 1, "error: rank 1 ended with exit code 1 and no message.*\n"),
        (("os._exit(7)", "os._exit(7)"), 7, "error: rank 0 ended with exit code 7 and no message.*\n"),
    ],
)
def test_every_failure_has_one_message(
    programs: tuple[str, str], code: int | tuple[int, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch((), 2, ranks(*programs)) in (code if isinstance(code, tuple) else (code,))
    assert re.fullmatch(message, capfd.readouterr().err)


def test_rank_that_ignores_signals_is_killed(capfd: pytest.CaptureFixture[str]) -> None:
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAIT}"
    assert launch((), 2, ranks(deaf, "time.sleep(0.5); sys.exit(1)")) == 1
    assert "waited to the end" not in capfd.readouterr().err


def test_signal_reaches_every_rank_once(tmp_path: Path) -> None:
    hears = f"""
signal.signal(signal.SIGTERM, lambda *_: open(r'{tmp_path}/' + os.environ['RANK'], 'a').write('x'))
open(r'{tmp_path}/ready' + os.environ['RANK'], 'w')
while not os.path.exists(r'{tmp_path}/' + os.environ['RANK']): time.sleep(0.02)
sys.exit(143)
"""
    imports = "import sys; from loopkit.training.distributed.launch import launch"
    code = f"{imports}; sys.exit(launch((), 2, {ranks(hears, hears)!r}))"
    started = subprocess.Popen([sys.executable, "-c", code])
    while not all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)):
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGTERM)
    assert started.wait(20) == 143
    assert [(tmp_path / rank).read_text() for rank in ("0", "1")] == ["x", "x"]


def test_ranks_stop_without_their_launcher(tmp_path: Path) -> None:
    hears = f"""
from loopkit.training.distributed.launch import follow_launcher
signal.signal(signal.SIGTERM, lambda *_: (open(r'{tmp_path}/' + os.environ['RANK'], 'w').write('x'), sys.exit(143)))
follow_launcher()
open(r'{tmp_path}/ready' + os.environ['RANK'], 'w')
time.sleep(30)
"""
    imports = "import sys; from loopkit.training.distributed.launch import launch"
    code = f"{imports}; sys.exit(launch((), 2, {ranks(hears, hears)!r}))"
    started = subprocess.Popen([sys.executable, "-c", code])
    while not all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)):
        time.sleep(0.02)
    assert not (tmp_path / "0").exists()
    started.kill()
    started.wait(20)
    end = time.monotonic() + 20
    while not all((tmp_path / rank).is_file() and (tmp_path / rank).read_text() for rank in ("0", "1")):
        assert time.monotonic() < end, "a rank goes on without its launcher"
        time.sleep(0.02)
