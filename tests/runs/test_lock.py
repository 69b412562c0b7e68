"""A run is trained by one process at a time; one that is killed holds nothing."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from loopkit.runs import RunFolder
from loopkit.runs.lock import RunBusy, held

HOLD = """
import sys, time
from pathlib import Path
from loopkit.runs import RunFolder
from loopkit.runs.lock import held
with held(RunFolder(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


def test_locked_run_is_rejected_until_released(tmp_path: Path) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    with pytest.raises(RunBusy, match=r"another process is training .*--resume"), held(RunFolder(tmp_path)):
        pass
    first.kill()
    first.wait()
    for _ in range(2):
        with held(RunFolder(tmp_path)):
            pass


def test_file_systems_without_locks_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    entered = False
    with held(RunFolder(tmp_path)):
        entered = True
    assert entered
