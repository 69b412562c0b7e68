"""The installed program called by its full path: no activated environment, no compiler, no ninja, no network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

PROGRAM = Path(sys.executable).with_name("loopkit")
LIMIT = 15.0  # seconds to the first step, on a quiet machine


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment with next to nothing in it."""
    if not PROGRAM.is_file():
        pytest.skip("loopkit is not installed in this environment")
    nothing = tmp_path / "bin"
    nothing.mkdir()
    return {
        "PATH": str(nothing),
        "HOME": str(tmp_path),
        "LOOPKIT_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
    }


def test_it_trains_and_soon(bare: dict[str, str], tmp_path: Path) -> None:
    words = [str(PROGRAM), "train", "wikitext_44m_raw", "--profile", "smoke", "--name", "bare"]
    done = subprocess.run(words, cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "ninja" not in done.stderr
    assert "DeepSpeed" not in done.stderr + done.stdout
    lines = [json.loads(line) for line in (tmp_path / "runs/bare/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    session = json.loads((tmp_path / "runs/bare/provenance.json").read_text())["sessions"][0]
    assert session["status"] == "finished"


@pytest.mark.slow
def test_the_first_step_comes_soon(bare: dict[str, str], tmp_path: Path) -> None:
    words = [
        str(PROGRAM),
        "train",
        "wikitext_44m_raw",
        "--profile",
        "smoke",
        "--name",
        "soon",
        "--set",
        "train.steps=100000",
    ]
    start = time.perf_counter()
    running = subprocess.Popen(words, cwd=tmp_path, env=bare, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    metrics = tmp_path / "runs/soon/metrics.jsonl"
    while not (metrics.is_file() and metrics.stat().st_size) and time.perf_counter() - start < 10 * LIMIT:
        assert running.poll() is None, "training ended before its first step"
        time.sleep(0.05)
    seconds = time.perf_counter() - start
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=60) == 128 + signal.SIGTERM
    assert [path.name for path in (tmp_path / "runs/soon/checkpoints").glob("step-*")]
    print(f"first step after {seconds:.1f} s")
    assert seconds < LIMIT


def test_without_the_hub_the_local_option_is_named(bare: dict[str, str], tmp_path: Path) -> None:
    words = [str(PROGRAM), "train", "wikitext_44m_raw", "--set", "train.steps=1"]
    done = subprocess.run(words, cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "data.source.path" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_existing_run_is_refused(bare: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "runs" / "there").mkdir(parents=True)
    words = [str(PROGRAM), "train", "wikitext_44m_raw", "-p", "smoke", "--name", "there"]
    done = subprocess.run(words, cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert "--name" in done.stderr
    assert os.listdir(tmp_path / "runs" / "there") == []
