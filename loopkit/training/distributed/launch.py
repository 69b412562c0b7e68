"""Start the ranks of a run on this machine, watch over them, and end all when one fails. No torch."""

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

PATIENCE = 20.0
"""Seconds that ranks get to end on their own once another one has failed."""
LAUNCHED = "LOOPKIT_LAUNCHED"
"""Set for ranks that ``launch`` watches, to its process: how one of them was killed is then told by it."""
REPORTS = "LOOPKIT_REPORTS"
"""Set for ranks that ``launch`` watches, to a folder: the first rank to report an error puts its number there, and a
rank that only lost contact with another one puts its message there, for ``launch`` to show if there is no other."""
RESUME = "The newest whole checkpoint stays: go on from it with --resume"
"""What to do about a run that lost a rank."""
_TAIL = 4000
_REPORTER = "reporter"


@dataclass
class Rank:
    """One process.

    Args:
        number: Its rank.
        process: The process.
        said: What it wrote to standard error; None for rank 0, which writes to ours.
    """

    number: int
    process: subprocess.Popen[bytes]
    said: IO[bytes] | None

    def last_words(self) -> str:
        """The end of what it wrote."""
        if self.said is None:
            return ""
        self.said.seek(0, os.SEEK_END)
        self.said.seek(max(self.said.tell() - _TAIL, 0))
        return self.said.read().decode(errors="replace").strip()


def launch(
    words: Sequence[str], ranks: int, program: Sequence[str] = ("-m", "loopkit"), *, remedy: str = RESUME
) -> int:
    """Run a Python program with these words on several ranks of this machine.

    Rank 0 speaks. A signal is passed on to all. Where a rank fails the others are ended, and its own words are shown.

    Args:
        words: Arguments of the command.
        ranks: How many, >= 1.
        program: What Python runs.
        remedy: What to do after a rank was killed, in a sentence.

    Returns:
        The exit code of the rank that failed first, else 0.
    """
    command = [sys.executable, *program, *words]
    started: list[Rank] = []
    with _passing_on(started), tempfile.TemporaryDirectory(prefix="loopkit-") as reports:
        for number, environment in enumerate(environments(ranks)):
            said = None if number == 0 else tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as its rank)
            # a group of its own, or a terminal would send Ctrl-C twice: once to it, and once through us
            process = subprocess.Popen(
                command,
                env={**environment, REPORTS: reports},
                stdout=None if number == 0 else subprocess.DEVNULL,
                stderr=said,
                process_group=0,
            )
            started.append(Rank(number, process, said))
        try:
            failed = _watch(started)
        finally:
            _end(started)
        return 0 if failed is None else _conclude(failed, started, Path(reports), remedy)


def _conclude(failed: Rank, ranks: Sequence[Rank], reports: Path, remedy: str) -> int:
    """Make sure that one message says how the run failed; its exit code."""
    reporter = reports / _REPORTER
    if reporter.is_file():
        speaker = ranks[int(reporter.read_text() or failed.number)]
        if words := speaker.last_words():  # rank 0 has written to our standard error itself
            _say(words)
        return speaker.process.returncode if speaker.process.returncode > 0 else _exit_code(failed)
    lost = sorted(reports.glob("lost-*"))
    code = failed.process.returncode
    if code < 0:
        name = signal.Signals(-code).name
        if -code not in (signal.SIGKILL, signal.SIGTERM) and (words := failed.last_words()):  # a crash has left some
            _say(words)
        _say(f"error: rank {failed.number} was killed by {name}{_why(-code)}; all ranks ended. {remedy}")
    elif code == ExitCode.LOST and lost:
        _say(lost[0].read_text(encoding="utf-8"))
    elif words := failed.last_words():
        _say(words)
    elif code not in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):  # then rank 0 has said what it saved
        _say(f"error: rank {failed.number} ended with exit code {code} and no message; all ranks ended. {remedy}")
    return _exit_code(failed)


def _exit_code(rank: Rank) -> int:
    """The exit code of a rank as a shell has it."""
    code = rank.process.returncode
    return code if code >= 0 else 128 - code


def claim_report() -> bool:
    """Whether this rank is to report its error: under ``launch``, the first rank that asks, at its first error."""
    if REPORTS not in os.environ:
        return True
    try:
        with open(Path(os.environ[REPORTS], _REPORTER), "x") as file:
            file.write(os.environ["RANK"])
    except OSError:  # another rank was faster, or the launcher is gone
        return False
    return True


def should_report() -> bool:
    """Whether this process is to report an error that no rank has met another one to agree on."""
    if REPORTS in os.environ:
        return claim_report()
    return "WORLD_SIZE" not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"


def leave_message(text: str) -> None:
    """Leave the message of a rank that lost contact: ``launch`` shows one of them if no rank reports a cause."""
    with suppress(OSError):
        Path(os.environ[REPORTS], f"lost-{int(os.environ['RANK']):05d}").write_text(text, encoding="utf-8")


def environments(ranks: int) -> Iterator[dict[str, str]]:
    """The environment of each rank, as torchrun would make it; a free port serves their first meeting."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        LAUNCHED: str(os.getpid()),
    }
    if "OMP_NUM_THREADS" not in os.environ:  # each rank would take every core
        shared["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // ranks, 1))
    for number in range(ranks):
        yield {**os.environ, **shared, "RANK": str(number), "LOCAL_RANK": str(number)}


def under_launcher(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher, ours or another, has already started this process as one of several.

    Raises:
        UserError: If the variables that a launcher sets are there in part, or are not numbers.
    """
    values = {name: environment.get(name, "") for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")}
    world = values["WORLD_SIZE"]
    if world in ("", "1"):
        return False
    wrong = [name for name in ("WORLD_SIZE", "RANK", "MASTER_PORT") if not values[name].isdecimal()]
    wrong += [] if values["MASTER_ADDR"] else ["MASTER_ADDR"]
    if wrong:
        shown = ", ".join(f"{name} is {values[name]!r}" if values[name] else f"{name} is not set" for name in wrong)
        raise UserError(
            f"WORLD_SIZE={world} means that a launcher has started several ranks, but {shown}; start them with --nproc "
            "or torchrun, or unset WORLD_SIZE"
        )
    return True


def follow_launcher() -> None:
    """Have this rank stop, as at SIGTERM, when the launcher is gone: nobody else would end it, and a resumed run would
    write into the same folder."""
    threading.Thread(target=_follow, args=(int(os.environ[LAUNCHED]),), name="launcher", daemon=True).start()


def _follow(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(ExitCode.LOST)


def _watch(ranks: Sequence[Rank]) -> Rank | None:
    """Wait until all have ended or one has failed; the one that failed, and not one that only lost another."""
    while True:
        codes = [rank.process.poll() for rank in ranks]
        if all(code == 0 for code in codes):
            return None
        if any(code for code in codes):
            break
        time.sleep(0.05)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        causes = [rank for rank in ranks if rank.process.poll() not in (None, 0, ExitCode.LOST)]
        if causes:  # a backend may abort a rank that lost another one
            return min(causes, key=lambda rank: rank.process.returncode == -signal.SIGABRT)
        if all(rank.process.poll() is not None for rank in ranks):
            break
        time.sleep(0.05)
    return next(rank for rank in ranks if rank.process.poll())


def _end(ranks: Sequence[Rank]) -> None:
    """Wait for those that end on their own, then ask, then kill."""
    for step, seconds in ((None, 0.5), (signal.SIGTERM, PATIENCE), (signal.SIGKILL, PATIENCE)):
        deadline = time.monotonic() + seconds
        for rank in ranks:
            if step is not None and rank.process.poll() is None:
                rank.process.send_signal(step)
        for rank in ranks:
            try:
                rank.process.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def _passing_on(ranks: Sequence[Rank]) -> Iterator[None]:
    """Send SIGINT and SIGTERM on to every rank, which decide themselves what it means."""

    def handle(signum: int, frame: FrameType | None) -> None:
        for rank in ranks:
            if rank.process.poll() is None:
                rank.process.send_signal(signum)

    before = {signum: signal.signal(signum, handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _why(signum: int) -> str:
    return " (out of memory, if nobody did it by hand)" if signum == signal.SIGKILL else ""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
