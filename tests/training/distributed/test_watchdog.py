"""The watchdog records the stacks of a process without progress and ends it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopkit.exit_codes import ExitCode
from loopkit.training.distributed.watchdog import Watchdog


def test_hang_is_recorded_with_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[int] = []
    over = threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        over.set()

    def stuck_here() -> None:
        over.wait(20)

    with Watchdog(0.05, tmp_path / "hung.txt", rank=3, end=end):
        stuck_here()
    assert ended == [ExitCode.HUNG]
    text = (tmp_path / "hung.txt").read_text()
    assert "rank 3 has made no progress" in text
    assert "stuck_here" in text
    message = capsys.readouterr().err
    assert "train.health.hang" in message
    assert str(tmp_path / "hung.txt") in message


def test_progress_and_pauses_are_not_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test sets the clock, so that a slow machine does not count as a hang."""
    clock, ended = [0.0], list[int]()
    monkeypatch.setattr("loopkit.training.distributed.watchdog.time", SimpleNamespace(monotonic=lambda: clock[0]))
    with Watchdog(0.04, tmp_path / "hung.txt", end=ended.append) as watchdog:
        for _ in range(10):
            clock[0] += 0.03
            time.sleep(0.02)  # the watchdog checks every 0.01 s
            watchdog.beat()
        with watchdog.paused():
            clock[0] += 10
            time.sleep(0.05)
        time.sleep(0.05)
    assert ended == []
    assert not (tmp_path / "hung.txt").exists()


def test_unwritable_file_does_not_prevent_the_exit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over = threading.Event()
    with Watchdog(0.05, tmp_path / "absent" / "hung.txt", end=lambda _: over.set()):
        assert over.wait(20)
    assert "could not be written" in capsys.readouterr().err


def test_hung_process_has_its_own_exit_code(tmp_path: Path) -> None:
    code = f"""
import threading
from pathlib import Path
from loopkit.exit_codes import ExitCode
from loopkit.training.distributed.watchdog import Watchdog
with Watchdog(0.1, Path({str(tmp_path / "hung.txt")!r})):
    threading.Lock().acquire() and threading.Event().wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == ExitCode.HUNG


def test_watchdog_without_limit_starts_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with Watchdog(None, tmp_path / "hung.txt"):
        assert threading.active_count() == before
