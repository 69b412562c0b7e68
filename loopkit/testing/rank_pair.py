"""Two ranks that train components, kept for the whole session: starting them costs more than all of their steps.

``python -m loopkit.testing.rank_pair`` is one of them. It reads a job from each line of standard input and writes what
became of it to standard output, both as JSON.
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

SECONDS = 120.0
"""How long a job may take before the ranks count as waiting for each other."""


class RankFailed(Exception):
    """A rank did not finish a job."""


class RankPair:
    """Two processes that form a group."""

    def __init__(self) -> None:
        from loopkit.training.distributed.launch import environments

        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self.errors: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  (closed with the pair)
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
        """What both ranks answer.

        Raises:
            RankFailed: If one of them fails, ends or does not answer; the pair is of no more use then.
        """
        line = json.dumps(job).encode() + b"\n"
        try:
            for process in self.processes:
                assert process.stdin is not None
                process.stdin.write(line)
        except BrokenPipeError:
            raise RankFailed(self._last_words()) from None
        return [self._answer(process) for process in self.processes]

    def _answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([process.stdout], [], [], SECONDS)[0]:
                raise RankFailed(f"no answer within {SECONDS:.0f} s: the ranks wait for each other")
            part = process.stdout.read(1 << 16)
            if not part:
                raise RankFailed(self._last_words())
            text += part
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise RankFailed(answer["error"])
        return answer

    def _last_words(self) -> str:
        said = []
        for errors in self.errors:
            errors.seek(0)
            said.append(errors.read().decode(errors="replace").strip())
        return "a rank ended: " + (max(said, key=len)[-1000:] or "without a word")

    def close(self) -> None:
        """End both."""
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
    """What ``train`` gives on each of two ranks.

    Raises:
        RankFailed: If a rank fails or does not answer.
    """
    if not _PAIR:
        _PAIR.append(RankPair())
        atexit.register(_close)
    job = {"component": _text(subject), "given": dict(subject.given), "model": dict(subject.model)}
    try:
        answers = _PAIR[0].run({**job, "plan": asdict(plan)})
    except RankFailed:
        _close()
        raise
    return [
        {name: torch.tensor(values, dtype=torch.float64) for name, values in answer["state"].items()}
        for answer in answers
    ]


def _close() -> None:
    while _PAIR:
        _PAIR.pop().close()


def _text(subject: ComponentUnderTest) -> str:
    """The component as another process finds it."""
    module = subject.cls.__module__
    place = str(subject.schema.file) if module.startswith("loopkit_local_") else module
    return f"{place}:{subject.cls.__name__}"


def main() -> None:
    """Do the jobs of standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a component prints is no answer
    torch.set_num_threads(1)
    from loopkit.training.distributed.deepspeed_import import deepspeed
    from loopkit.training.distributed.process_group import join

    process = join("cpu")
    deepspeed(process.device)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            subject = find_component(job["component"], job["given"], job["model"])
            state = train(subject, TrainingPlan(**job["plan"]), process)
            answer: dict[str, Any] = {"state": {name: value.flatten().tolist() for name, value in state.items()}}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
