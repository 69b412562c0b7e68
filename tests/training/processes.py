"""Train in processes that can be killed; a server with all imports done forks them quickly.

``python -m tests.training.processes --kills 100 --writing 30`` is the study: it kills a run again and again, resumes
it each time, and compares the result with an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch._dynamo  # imported by torch when a model is first made on meta, which takes seconds

import loopkit.evaluation.measure  # noqa: F401  (imported by training when it first evaluates)
from loopkit.recipe import load_recipe
from loopkit.registry.catalog import catalog
from loopkit.runs import newest_checkpoint
from loopkit.runs.checkpoint import checkpoints
from loopkit.training.distributed.deepspeed_import import deepspeed
from loopkit.training.errors import Ended
from tests.training.kills import is_writing, run_study
from tests.training.runs import assert_same_bits, fit

deepspeed(torch.device("cpu"))
catalog()
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([__spec__.name if __spec__ else __name__])


def _train(recipe: Path, overrides: tuple[str, ...], folder: Path, resume: bool, place: dict[str, str]) -> None:
    os.environ.update(place)
    torch.set_num_threads(1)
    import loopkit.cost.hardware as hardware

    hardware.measure_matmul_rate = lambda *_: 1e12  # half a second of measuring is of no use here
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            fit(load_recipe(recipe, (), overrides), folder, resume=resume)
        except Ended as ended:
            sys.exit(ended.exit_code)


def start(recipe: Path, folder: Path, *overrides: str, resume: bool = False, ranks: int = 1) -> list[BaseProcess]:
    """Start training in other processes."""
    places: list[dict[str, str]] = [{}]
    if ranks > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        places = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    processes = [SERVER.Process(target=_train, args=(recipe, overrides, folder, resume, place)) for place in places]
    for process in processes:
        process.start()
    return processes


def finish(processes: list[BaseProcess], seconds: float = 300) -> list[int | None]:
    """Wait for the processes; return their exit codes."""
    for process in processes:
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


@dataclass
class Killed:
    """Observations of the study.

    Args:
        kills: Processes killed while the run existed.
        writing: Of them, those killed while a checkpoint was being written or removed: its nameless folder was left.
        runs: Runs that finished after at least one kill, each bitwise equal to the uninterrupted one.
        resumed_from: Steps from which a killed run resumed.
    """

    kills: int = 0
    writing: int = 0
    runs: int = 0
    resumed_from: list[int] = field(default_factory=list)


def study(recipe: Path, home: Path, *, kills: int, writing: int, seed: int = 0) -> Killed:
    """Kill runs at random moments until the number of kills is reached, and finish each run.

    Raises:
        AssertionError: If a checkpoint was lost, or a run restarted or differs from the uninterrupted one.
    """
    rng, seen = random.Random(seed), Killed()
    warm = SERVER.Process(target=int)  # the server imports before runs are timed
    warm.start()
    finish([warm])
    start_time = time.monotonic()
    assert finish(start(recipe, home / "alone")) == [0]
    duration = time.monotonic() - start_time
    last = max(checkpoint.step for checkpoint in checkpoints(home / "alone" / "checkpoints"))
    while seen.kills < kills or seen.writing < writing:
        folder = home / f"run-{seen.runs}"
        reached = -1
        while True:
            enough = seen.kills >= kills and seen.writing >= writing
            since = time.time_ns()
            (process,) = start(recipe, folder, resume=reached >= 0)
            if not enough:
                needs = writing - seen.writing >= kills - seen.kills or rng.random() < 0.5
                _wait(process, folder, rng, duration, since if needs else None)
                process.kill()
            code = finish([process])[0]
            if code == 0:
                break
            assert code == -signal.SIGKILL, f"exit code {code}"
            if not checkpoints(folder / "checkpoints") and reached < 0:
                shutil.rmtree(folder, ignore_errors=True)  # killed before the run existed
                continue
            checkpoint, damaged = newest_checkpoint(folder / "checkpoints")
            assert damaged == []
            assert checkpoint.step >= reached, f"step {reached} was lost, {checkpoint.step} is left"
            reached = checkpoint.step
            seen.kills += 1
            seen.writing += is_writing(folder / "checkpoints", since)
            seen.resumed_from.append(reached)
        assert_same_bits(home / "alone", folder, last)
        seen.runs += 1
        shutil.rmtree(folder)
    return seen


def _wait(process: BaseProcess, folder: Path, rng: random.Random, duration: float, writing_since: int | None) -> None:
    """Wait until a random moment of the run, or of writing a checkpoint."""
    end = time.monotonic() + rng.uniform(0.1, 0.8) * duration
    while process.is_alive() and time.monotonic() < end:
        time.sleep(0.001)
    if writing_since is not None:
        while process.is_alive() and not is_writing(folder / "checkpoints", writing_since):
            time.sleep(0.0002)
        time.sleep(rng.uniform(0, 0.015))


def main() -> None:
    run_study(study, __doc__, kills=100, writing=30)


if __name__ == "__main__":
    # under the name by which the server imports it
    from tests.training.processes import main as run

    run()
