"""Start the ranks of a run on this machine, and end all of them when one fails. This module does not import torch.

``torch.distributed.run`` with ``@record`` is not used: it needs torch, prints a summary besides the rank's own message,
and exits with 1 instead of the exit code of the failed rank.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode

GRACE_SECONDS = 20.0
"""Seconds in which ranks may exit by themselves after another one failed."""
LAUNCHED = "LOOPKIT_LAUNCHED"
"""Environment variable of ranks under ``launch``: its process id. The launcher reports ranks that were killed."""
REPORTS = "LOOPKIT_REPORTS"
"""Environment variable of ranks under ``launch``: a folder. The first rank that reports an error writes its number
there. A rank that lost contact writes its message there, which ``launch`` shows if no rank reports a cause."""
RESUME = "The newest complete checkpoint stays; continue from it with --resume"
"""Remedy for a run that lost a rank."""
_MAX_MESSAGE_BYTES = 4000
_REPORTER = "reporter"


@dataclass
class Rank:
    """The process of one rank.

    Args:
        number: Its rank.
        process: The process.
        stderr: File with its standard error; None for rank 0, which shares ours.
    """

    number: int
    process: subprocess.Popen[bytes]
    stderr: IO[bytes] | None

    def error_message(self) -> str:
        """Return the end of its standard error."""
        if self.stderr is None:
            return ""
        self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(self.stderr.tell() - _MAX_MESSAGE_BYTES, 0))
        return self.stderr.read().decode(errors="replace").strip()


def launch(
    arguments: Sequence[str], ranks: int, program: Sequence[str] = ("-m", "loopkit"), *, remedy: str = RESUME
) -> int:
    """Run a Python program on several ranks of this machine.

    Only rank 0 writes to the terminal. Signals are forwarded to all ranks. If a rank fails, the others are ended and
    its message is shown.

    Args:
        arguments: Arguments of the command.
        ranks: Number of ranks, >= 1.
        program: Program for Python.
        remedy: What to do after a rank was killed, as a sentence.

    Returns:
        The exit code of the rank that failed first, else 0.
    """
    command = [sys.executable, *program, *arguments]
    processes: list[Rank] = []
    with _forwarding_signals(processes), tempfile.TemporaryDirectory(prefix="loopkit-") as reports:
        for number, environment in enumerate(environments(ranks)):
            stderr = None if number == 0 else tempfile.TemporaryFile()  # noqa: SIM115  (open as long as its rank runs)
            # a process group of its own: otherwise Ctrl-C arrives twice, from the terminal and from this process
            process = subprocess.Popen(
                command,
                env={**environment, REPORTS: reports},
                stdout=None if number == 0 else subprocess.DEVNULL,
                stderr=stderr,
                process_group=0,
            )
            processes.append(Rank(number, process, stderr))
        try:
            failed = _wait_for_failure(processes)
        finally:
            _stop(processes)
        return 0 if failed is None else _report(failed, processes, Path(reports), remedy)


def _report(failed: Rank, ranks: Sequence[Rank], reports: Path, remedy: str) -> int:
    """Show exactly one message about the failure, and return the exit code."""
    reporter = reports / _REPORTER
    if reporter.is_file():
        reporting = ranks[int(reporter.read_text() or failed.number)]
        if message := reporting.error_message():  # rank 0 shares our standard error
            _print_error(message)
        return reporting.process.returncode if reporting.process.returncode > 0 else _exit_code(failed)
    lost = sorted(reports.glob("lost-*"))
    code = failed.process.returncode
    if code < 0:
        name = signal.Signals(-code).name
        if -code not in (signal.SIGKILL, signal.SIGTERM) and (message := failed.error_message()):  # a crash
            _print_error(message)
        _print_error(
            f"error: rank {failed.number} was killed by {name}{_likely_cause(-code)}; all ranks ended. {remedy}"
        )
    elif code == ExitCode.LOST and lost:
        _print_error(lost[0].read_text(encoding="utf-8"))
    elif message := failed.error_message():
        _print_error(message)
    elif code not in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):  # otherwise rank 0 has reported its checkpoint
        _print_error(
            f"error: rank {failed.number} ended with exit code {code} and no message; all ranks ended. {remedy}"
        )
    return _exit_code(failed)


def _exit_code(rank: Rank) -> int:
    """Return the exit code of a rank as a shell reports it."""
    code = rank.process.returncode
    return code if code >= 0 else 128 - code


def claim_report() -> bool:
    """Whether this rank reports its error: under ``launch`` only the first rank that calls this, and only once."""
    if REPORTS not in os.environ:
        return True
    try:
        with open(Path(os.environ[REPORTS], _REPORTER), "x") as file:
            file.write(os.environ["RANK"])
    except OSError:  # another rank reports, or the launcher is gone
        return False
    return True


def should_report() -> bool:
    """Whether this process reports an error that occurs before the ranks are connected."""
    if REPORTS in os.environ:
        return claim_report()
    return "WORLD_SIZE" not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"


def leave_message(message: str) -> None:
    """Store the message of a rank that lost contact; ``launch`` shows one of them if no rank reports a cause."""
    with suppress(OSError):
        Path(os.environ[REPORTS], f"lost-{int(os.environ['RANK']):05d}").write_text(message, encoding="utf-8")


def environments(ranks: int) -> Iterator[dict[str, str]]:
    """Yield the environment of each rank, as torchrun sets it, with a free port for the rendezvous."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        LAUNCHED: str(os.getpid()),
    }
    if "OMP_NUM_THREADS" not in os.environ:  # otherwise each rank would use every core
        shared["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // ranks, 1))
    for number in range(ranks):
        yield {**os.environ, **shared, "RANK": str(number), "LOCAL_RANK": str(number)}


def under_launcher(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher, ours or another, started this process as one of several ranks.

    Raises:
        UserError: If the variables that a launcher sets are incomplete, or are not numbers.
    """
    values = {name: environment.get(name, "") for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")}
    world = values["WORLD_SIZE"]
    if world in ("", "1"):
        return False
    invalid = [name for name in ("WORLD_SIZE", "RANK", "MASTER_PORT") if not values[name].isdecimal()]
    invalid += [] if values["MASTER_ADDR"] else ["MASTER_ADDR"]
    if invalid:
        shown = ", ".join(f"{name} is {values[name]!r}" if values[name] else f"{name} is not set" for name in invalid)
        raise UserError(
            f"WORLD_SIZE={world} means that a launcher has started several ranks, but {shown}; start them with --nproc "
            "or torchrun, or unset WORLD_SIZE"
        )
    return True


def follow_launcher() -> None:
    """Stop this rank with SIGTERM when its launcher is gone; otherwise it would write into the folder of a resumed
    run."""
    threading.Thread(
        target=_stop_without_launcher, args=(int(os.environ[LAUNCHED]),), name="launcher", daemon=True
    ).start()


def _stop_without_launcher(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(ExitCode.LOST)


def _wait_for_failure(ranks: Sequence[Rank]) -> Rank | None:
    """Wait until all ranks ended or one failed; return the failed rank rather than one that lost contact with it."""
    while True:
        codes = [rank.process.poll() for rank in ranks]
        if all(code == 0 for code in codes):
            return None
        if any(code for code in codes):
            break
        time.sleep(0.05)
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        causes = [rank for rank in ranks if rank.process.poll() not in (None, 0, ExitCode.LOST)]
        if causes:  # a backend may abort a rank that lost another one
            return min(causes, key=lambda rank: rank.process.returncode == -signal.SIGABRT)
        if all(rank.process.poll() is not None for rank in ranks):
            break
        time.sleep(0.05)
    return next(rank for rank in ranks if rank.process.poll())


def _stop(ranks: Sequence[Rank]) -> None:
    """Wait for ranks that exit by themselves, then send SIGTERM, then SIGKILL."""
    for signum, seconds in ((None, 0.5), (signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        deadline = time.monotonic() + seconds
        for rank in ranks:
            if signum is not None and rank.process.poll() is None:
                rank.process.send_signal(signum)
        for rank in ranks:
            try:
                rank.process.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def _forwarding_signals(ranks: Sequence[Rank]) -> Iterator[None]:
    """Forward SIGINT and SIGTERM to every rank."""

    def handle(signum: int, frame: FrameType | None) -> None:
        for rank in ranks:
            if rank.process.poll() is None:
                rank.process.send_signal(signum)

    previous_handlers = {signum: signal.signal(signum, handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)


def _likely_cause(signum: int) -> str:
    return " (probably out of memory)" if signum == signal.SIGKILL else ""


def _print_error(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
