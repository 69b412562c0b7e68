"""Several ranks from the command line: one output, and a failure of one rank that ends all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopkit.runs import RunFolder, read_metrics
from loopkit.runs.checkpoint import newest_checkpoint
from tests.training.conftest import RECIPE, TEXT

pytestmark = pytest.mark.e2e
SECONDS = 300
FRAGILE = '''
import os
from loopkit.components.regularizer import Regularizer
from loopkit.errors import UserError
from loopkit.registry import register


@register("regularizer", "fragile")
class Fragile(Regularizer):
    """Breaks on one rank.

    Args:
        weight: Coefficient.
        how: What happens.
    """

    def __init__(self, *, weight: float = 0.0, how: str = "bug") -> None:
        super().__init__()
        self.weight, self.how, self.calls = weight, how, 0

    def forward(self, t):
        self.calls += 1
        if os.environ["RANK"] == "1" and self.calls == 3:
            if self.how == "kill":
                os.kill(os.getpid(), 9)
            raise (UserError if self.how == "user" else ZeroDivisionError)("something broke")
        return t.state(1).mean() * 0.0
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "train.txt").write_text(TEXT)
    (tmp_path / "texts" / "validation.txt").write_text(TEXT[:100])
    (tmp_path / "fragile.py").write_text(FRAGILE)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "LOOPKIT_CACHE": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(paths)}


def loopkit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loopkit", *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_only_first_rank_prints(folder: Path) -> None:
    done = loopkit(folder, "train", "tiny.yaml", "--nproc", "2", "--name", "two")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("training: 8 steps of 8 sequences, micro-batch 2 on each of 2 ranks") == 1
    assert done.stdout.count("run: runs/two") == 1
    assert len(read_metrics(RunFolder(folder / "runs" / "two").metrics)) == 8


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        # tests/training/distributed/test_rank_errors.py checks the words of one rank without the command line
        pytest.param("user", 2, "something broke", marks=pytest.mark.slow),
        ("kill", 137, "rank 1 was killed by SIGKILL"),
    ],
)
def test_failure_of_one_rank_ends_all(folder: Path, how: str, code: int, message: str) -> None:
    options = ("--plugins", "fragile.py", "--set", f"objective.regularizers.fragile={{how: {how}}}")
    done = loopkit(folder, "train", "tiny.yaml", "--nproc", "2", "--name", "broken", *options)
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, done.stderr
    assert message in errors[0]
    assert "rank 1" in errors[0]
    assert "Traceback" not in done.stderr


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[list[tuple[str, str]]]:
    """Two network namespaces joined by a wire: name and address of each."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` to make network namespaces with")
    names = [f"lk{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            result = ip("netns", "add", name)
            if result.returncode:
                pytest.skip(f"network namespaces are not permitted here: {result.stderr.strip()}")
        wire = ip("link", "add", "wire0", "netns", names[0], "type", "veth", "peer", "name", "wire0", "netns", names[1])
        if wire.returncode:
            pytest.skip(f"virtual wires are not permitted here: {wire.stderr.strip()}")
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "wire0")
            ip("-n", name, "link", "set", "wire0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield [(name, f"10.77.0.{number}") for number, name in enumerate(names, 1)]
    finally:
        for name in names:
            ip("netns", "del", name)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.ci
def test_killed_rank_ends_job_on_two_hosts(folder: Path, hosts: list[tuple[str, str]]) -> None:
    run = RunFolder(folder / "runs" / "net")
    started = []
    for number, (name, address) in enumerate(hosts):
        words = ["ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run"]
        words += ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "job", "--rdzv-backend", "c10d"]
        words += ["--rdzv-endpoint", f"{hosts[0][1]}:29400", "--rdzv-conf", f"is_host={int(number == 0)}"]
        words += ["--local-addr", address, "-m", "loopkit", "train", "tiny.yaml", "--name", "net"]
        words += ["--set", "train.steps=100000", "--set", "train.checkpoint.every=3"]
        output = (folder / f"host{number}").open("w")
        shown = {"cwd": folder, "stdout": output, "stderr": output}
        started.append(subprocess.Popen(words, env={**environment(folder), "GLOO_SOCKET_IFNAME": "wire0"}, **shown))  # type: ignore[call-overload]
    try:
        end = time.monotonic() + SECONDS
        while not run.metrics.is_file() or len(read_metrics(run.metrics)) < 10:
            assert all(process.poll() is None for process in started), (folder / "host0").read_text()
            assert time.monotonic() < end, (folder / "host0").read_text()
            time.sleep(0.2)
        (worker,) = children(started[1].pid)
        os.kill(worker, 9)
        codes = [process.wait(SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(codes)
    output = (folder / "host0").read_text()
    assert output.count("error: rank 0") == 1, output
    assert "lost another rank, which was killed or cannot be reached any more (" in output
    checkpoint, _ = newest_checkpoint(run.checkpoints)
    assert checkpoint.check().step >= 3
