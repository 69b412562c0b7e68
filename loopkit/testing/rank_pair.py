"""Two ranks that train components. They stay alive for the session, because starting them costs more than their steps.

``python -m loopkit.testing.rank_pair`` is one rank. It reads a job from each line of standard input and writes its
result to standard output, both as JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from loopkit.testing.component_under_test import ComponentUnderTest, find_component
from loopkit.testing.training_run import TrainingPlan, train

TIMEOUT_SECONDS = 120.0
"""Time after which a job counts as a deadlock between the ranks."""


class RankFailed(Exception):
    """A rank did not finish a job."""


class RankPair:
    """Two processes that form a process group."""

    def __init__(self) -> None:
        from loopkit.training.distributed.launch import environments

        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self.errors: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  (close() closes them)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name],
                env={**environment, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
            for environment, errors in zip(environments(2), self.errors, strict=True)
        ]

    def run(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run a job and return the result of each rank.

        Raises:
            RankFailed: If a rank fails, ends or does not answer; the pair cannot be used afterwards.
        """
        line = json.dumps(job).encode() + b"\n"
        try:
            for process in self.processes:
                assert process.stdin is not None
                process.stdin.write(line)
        except BrokenPipeError:
            raise RankFailed(self._ended()) from None
        return [self._read_result(process) for process in self.processes]

    def _read_result(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([process.stdout], [], [], TIMEOUT_SECONDS)[0]:
                raise RankFailed(f"no answer within {TIMEOUT_SECONDS:.0f} s: the ranks probably wait for each other")
            part = process.stdout.read(1 << 16)
            if not part:
                raise RankFailed(self._ended())
            text += part
        result: dict[str, Any] = json.loads(text)
        if "error" in result:
            raise RankFailed(result["error"])
        return result

    def _ended(self) -> str:
        outputs = []
        for errors in self.errors:
            errors.seek(0)
            outputs.append(errors.read().decode(errors="replace").strip())
        return "a rank ended: " + (max(outputs, key=len)[-1000:] or "it printed nothing")

    def close(self) -> None:
        """Stop both processes."""
        for process in self.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
        for errors in self.errors:
            errors.close()


_PAIR: list[RankPair] = []


def train_on_two_ranks(subject: ComponentUnderTest, plan: TrainingPlan) -> list[dict[str, Tensor]]:
    """Run ``train`` on two ranks and return the result of each.

    Raises:
        RankFailed: If a rank fails or does not answer.
    """
    if not _PAIR:
        _PAIR.append(RankPair())
        atexit.register(_close)
    job = {"component": _import_path(subject), "options": dict(subject.explicit_options), "model": dict(subject.model)}
    try:
        results = _PAIR[0].run({**job, "plan": asdict(plan)})
    except RankFailed:
        _close()
        raise
    return [
        {name: torch.tensor(values, dtype=torch.float64) for name, values in result["state"].items()}
        for result in results
    ]


def _close() -> None:
    while _PAIR:
        _PAIR.pop().close()


def _import_path(subject: ComponentUnderTest) -> str:
    """The component in a form that another process can import."""
    module = subject.cls.__module__
    location = str(subject.schema.file) if module.startswith("loopkit_local_") else module
    return f"{location}:{subject.cls.__name__}"


def main() -> None:
    """Run the jobs from standard input until it ends."""
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output that a component prints must not mix with results
    torch.set_num_threads(1)
    from loopkit.training.distributed.deepspeed_import import deepspeed
    from loopkit.training.distributed.process_group import join

    process = join("cpu")
    deepspeed(process.device)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            subject = find_component(job["component"], job["options"], job["model"])
            state = train(subject, TrainingPlan(**job["plan"]), process)
            result: dict[str, Any] = {"state": {name: value.flatten().tolist() for name, value in state.items()}}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=results)


if __name__ == "__main__":
    main()
