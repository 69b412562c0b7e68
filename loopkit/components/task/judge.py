"""Comparing answers with math-verify, beside this process: nothing that an answer holds can stop or kill a run."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from loopkit.components.task.answers import formula
from loopkit.errors import UserError

SECONDS = 5
"""How long reading or comparing an answer may take."""

_START = 120.0  # seconds until math-verify is imported, also on a busy machine
_VERIFIER = Path(__file__).with_name("verifier.py")
REMEDY = "install loopkit[eval], or math-verify itself"


class NoMathVerify(UserError):
    """The package that compares answers is not installed."""


@dataclass(frozen=True)
class Grade:
    """What an answer is worth.

    Args:
        parsed: Whether it could be read, within the time.
        correct: Whether it equals the right one.
    """

    parsed: bool
    correct: bool


class Judge:
    """Compares answers in a process of its own.

    math-verify ends what takes too long with alarms, which reach the main thread alone and no computation in C. So it
    runs in the main thread of another process, and one that does not answer at all is ended and started again.

    Args:
        seconds: How long reading or comparing an answer may take; the process is ended after four times as long.
    """

    def __init__(self, seconds: int = SECONDS) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._turn = threading.Lock()

    def compare(self, gold: str, answer: str) -> Grade:
        """Whether an answer equals the right one.

        Raises:
            NoMathVerify: If math-verify is not installed.
            ValueError: If the right answer cannot be read.
        """
        request = {"gold": formula(gold), "answer": formula(answer), "seconds": self.seconds}
        with self._turn:
            self.start()
            found = self._ask(json.dumps(request), 4.0 * self.seconds)
            if found is None:
                self.stop()
                return Grade(False, False)
        if "error" in found:
            raise UserError(f"answer {gold!r}: {found['error']}")
        return Grade(found["parsed"], found["correct"])

    def start(self) -> None:
        """Have the process ready.

        Raises:
            NoMathVerify: If math-verify is not installed.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self._said = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_VERIFIER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "CUDA_VISIBLE_DEVICES": ""},
        )
        assert self._process.stdout is not None
        threading.Thread(target=_listen, args=(self._process.stdout, self._said), daemon=True).start()
        greeting = self._ask(None, _START)
        if greeting is None or "error" in greeting:
            self.stop()
            why = "it does not start" if greeting is None else greeting["error"]
            raise NoMathVerify(f"answers are compared with math-verify, which cannot be used ({why}); {REMEDY}")

    def stop(self) -> None:
        """End the process; the next comparison starts another one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()

    def _ask(self, line: str | None, seconds: float) -> dict[str, Any] | None:
        """What the process says, after a line to it; ``None`` where it says nothing in time, or died."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            if line is not None:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
            said = self._said.get(timeout=seconds)
        except (queue.Empty, BrokenPipeError):
            return None
        return None if said is None else json.loads(said)


def _listen(pipe: IO[str], said: queue.SimpleQueue[str | None]) -> None:
    try:
        for line in pipe:
            said.put(line)
    except ValueError:  # the pipe was closed under us
        pass
    said.put(None)
