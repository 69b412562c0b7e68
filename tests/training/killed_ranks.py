"""Kill the two ranks of ``loopkit train --nproc 2`` repeatedly and resume each time.

``python -m tests.training.killed_ranks --kills 16 --writing 5`` is the study. Each kill, at a random moment, takes one
rank, both, the launcher, or all three; some happen while a checkpoint is being written. The final run must equal an
uninterrupted one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from loopkit.runs import RunFolder, newest_checkpoint, read_metrics
from tests.training.kills import is_writing, run_study
from tests.training.runs import assert_same_bits, lines

RANKS = 2
SECONDS = 300.0
ENDS_WITHIN = 60.0
"""Limit in seconds from a kill to the end of the job: more than twice the launcher's own limit."""
OPTIONS = ("train.steps={steps}", "train.checkpoint={{every: 2, keep: 2}}")
VICTIMS = ("one", "one", "both", "launcher", "all")


@dataclass
class Killed:
    """Observations of the study.

    Args:
        victims: The killed processes of each kill.
        writing: Kills that left a checkpoint without a name: it was being written or removed.
        resumed_from: Steps from which the run resumed.
        slowest: Longest time from a kill to the end of everything of the job, in seconds.
    """

    victims: list[str] = field(default_factory=list)
    writing: int = 0
    resumed_from: list[int] = field(default_factory=list)
    slowest: float = 0.0


class Job:
    """``loopkit train --nproc 2``, and the processes that it starts."""

    def __init__(self, recipe: Path, folder: RunFolder, steps: int, *, resume: bool) -> None:
        options = [word for option in OPTIONS for word in ("--set", option.format(steps=steps))]
        words = ["-m", "loopkit", "train", str(recipe), "--nproc", str(RANKS), "--runs", str(folder.path.parent)]
        words += ["--name", folder.name, *options, *(["--resume"] if resume else [])]
        self.error_output = tempfile.TemporaryFile("w+")  # noqa: SIM115  (lives as long as the job)
        env = {**os.environ, "LOOPKIT_CACHE": str(folder.path.parent / "cache"), "OMP_NUM_THREADS": "1"}
        self.launcher = subprocess.Popen(
            [sys.executable, *words], env=env, stdout=subprocess.DEVNULL, stderr=self.error_output, process_group=0
        )
        self.ranks: list[int] = []

    def meet(self) -> bool:
        """Wait until the launcher has started every rank; return False if it has ended."""
        pid = self.launcher.pid
        while self.launcher.poll() is None and len(self.ranks) < RANKS:
            with contextlib.suppress(OSError):
                self.ranks = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            time.sleep(0.005)
        return len(self.ranks) == RANKS

    def kill(self, victims: str, rng: random.Random) -> None:
        """Send SIGKILL to the victims."""
        chosen = {
            "one": [rng.choice(self.ranks)],
            "both": self.ranks,
            "launcher": [self.launcher.pid],
            "all": [self.launcher.pid, *self.ranks],
        }[victims]
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ended(self, seconds: float) -> float:
        """Wait until every process of the job has ended; return the seconds.

        Raises:
            AssertionError: If something is still there.
        """
        start_time = time.monotonic()
        while (left := [pid for pid in [self.launcher.pid, *self.ranks] if self._lives(pid)]) or (
            self.launcher.poll() is None
        ):
            waited = time.monotonic() - start_time
            if waited > seconds:
                self.kill("all", random.Random())
                raise AssertionError(f"{left} of the job still run after {waited:.0f} s; its errors: {self.words}")
            time.sleep(0.02)
        return time.monotonic() - start_time

    def _lives(self, pid: int) -> bool:
        if pid == self.launcher.pid:
            return self.launcher.poll() is None
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return status not in "ZX"
        return False

    @property
    def words(self) -> str:
        """What the job wrote to standard error."""
        self.error_output.seek(0)
        return self.error_output.read()


def study(recipe: Path, home: Path, *, kills: int, writing: int, seed: int = 0) -> Killed:
    """Kill a run ``kills`` times at random moments, finish it, and compare it with an uninterrupted one.

    Raises:
        AssertionError: If a checkpoint was lost, the run restarted or differs from the uninterrupted one, a job
            did not end after a kill, or did not say what had happened.
    """
    steps = 10 * (kills + 4)
    alone = _alone(recipe, RunFolder(home / "alone"), steps)
    rng, seen, folder, reached = random.Random(seed), Killed(), RunFolder(home / "killed"), -1
    while len(seen.victims) < kills or seen.writing < writing:
        since = time.time_ns()
        job = Job(recipe, folder, steps, resume=reached >= 0)
        assert job.meet(), job.words
        assert _until(job, folder, rng, reached, since if seen.writing < writing else None), (
            f"the run ended after {len(seen.victims)} kills, {seen.writing} of them while writing: {job.words}"
        )
        victims = rng.choice(VICTIMS)
        job.kill(victims, rng)
        seen.slowest = max(seen.slowest, job.ended(ENDS_WITHIN))
        _spoke(job, victims)
        newest, damaged = newest_checkpoint(folder.checkpoints)
        assert damaged == []
        assert newest.step >= reached, f"step {reached} was lost, {newest.step} is left"
        seen.victims.append(victims)
        seen.writing += is_writing(folder.checkpoints, since)
        reached = newest.step
        seen.resumed_from.append(reached)
    last = Job(recipe, folder, steps, resume=True)
    last.meet()
    last.ended(SECONDS)
    assert last.launcher.returncode == 0, last.words
    assert f"resuming {folder.path} after step {reached}" in last.words
    assert [line["step"] for line in lines(folder.path)] == list(range(1, steps + 1))
    assert_same_bits(alone.path, folder.path, steps)
    return seen


def _alone(recipe: Path, folder: RunFolder, steps: int) -> RunFolder:
    job = Job(recipe, folder, steps, resume=False)
    job.meet()
    job.ended(SECONDS)
    assert job.launcher.returncode == 0, job.words
    return folder


def _until(job: Job, folder: RunFolder, rng: random.Random, reached: int, writing_since: int | None) -> bool:
    """Wait for a random moment: of a start, of training, or of the writing of a checkpoint; False if the run ended."""
    if reached >= 0 and writing_since is None and rng.random() < 0.25:
        time.sleep(rng.uniform(0, 8))
        return job.launcher.poll() is None
    target = max(reached, 0) + rng.randint(1, 6)
    end = time.monotonic() + SECONDS
    while job.launcher.poll() is None and time.monotonic() < end:
        if folder.metrics.is_file() and any(line["step"] >= target for line in read_metrics(folder.metrics)):
            break
        time.sleep(0.005)
    while (
        writing_since is not None and job.launcher.poll() is None and not is_writing(folder.checkpoints, writing_since)
    ):
        time.sleep(0.0002)
    time.sleep(rng.uniform(0, 0.02))
    return job.launcher.poll() is None


def _spoke(job: Job, victims: str) -> None:
    """Check that the survivors name the killed process once, and how to resume."""
    errors = [line for line in job.words.splitlines() if line.startswith("error:")]
    if victims in ("one", "both"):
        assert job.launcher.returncode == 128 + signal.SIGKILL, job.words
        assert len(errors) == 1, job.words
        assert "was killed by SIGKILL" in errors[0]
        assert "--resume" in errors[0]
    else:
        assert errors == [], job.words


def main() -> None:
    run_study(study, __doc__, kills=16, writing=5)


if __name__ == "__main__":
    main()
