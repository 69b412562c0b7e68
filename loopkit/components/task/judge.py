"""Compare answers with math-verify in a separate process, which no answer can make hang or crash the run."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.components.task.answers import formula
from loopkit.errors import UserError

SECONDS = 5
"""Time limit of each parse and comparison."""

_START_SECONDS = 120.0  # includes the import of math-verify on a busy machine
_VERIFIER = Path(__file__).with_name("verifier.py")
REMEDY = "install loopkit[eval], or math-verify itself"


class NoMathVerify(UserError):
    """math-verify is not installed."""


@dataclass(frozen=True)
class Grade:
    """The result of a comparison.

    Args:
        parsed: Whether the answer could be parsed within the time limit.
        correct: Whether it equals the reference answer.
    """

    parsed: bool = False
    correct: bool = False


class Judge:
    """Compares answers in a separate process.

    math-verify enforces time limits with alarms, which work only in a main thread and do not interrupt C code. The
    process has a main thread of its own; it is killed if it does not reply, and started again for the next answer.

    Args:
        seconds: Time limit of each parse and comparison; the process is killed after four times as long.
    """

    def __init__(self, seconds: int = SECONDS) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def compare(self, gold: str, answer: str) -> Grade:
        """Compare an answer with the reference answer.

        Raises:
            NoMathVerify: If math-verify is not installed.
            UserError: If the reference answer cannot be parsed.
        """
        request = {"gold": formula(gold), "answer": formula(answer), "seconds": self.seconds}
        with self._lock:
            self.start()
            reply = self._ask(json.dumps(request), 4.0 * self.seconds)
            if reply is None:
                self.stop()
                return Grade()
        if "error" in reply:
            raise UserError(f"answer {gold!r}: {reply['error']}")
        return Grade(reply["parsed"], reply["correct"])

    def start(self) -> None:
        """Start the process unless it is running.

        Raises:
            NoMathVerify: If math-verify is not installed.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_VERIFIER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "CUDA_VISIBLE_DEVICES": ""},
        )
        reply = self._ask(None, _START_SECONDS)
        if reply is None or "error" in reply:
            self.stop()
            reason = "it does not start" if reply is None else reply["error"]
            raise NoMathVerify(f"answers are compared with math-verify, which cannot be used ({reason}); {REMEDY}")

    def stop(self) -> None:
        """Kill the process; the next comparison starts another one."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError), self._process:  # closes the pipes and waits
                pass
            self._process = None

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()

    def _ask(self, line: str | None, seconds: float) -> dict[str, Any] | None:
        """Send a line and return the reply, which is one line; ``None`` on a timeout or if the process has died."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            if line is not None:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
        except BrokenPipeError:
            return None
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        reply = self._process.stdout.readline() if readable else ""
        return json.loads(reply) if reply else None
