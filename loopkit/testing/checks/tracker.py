"""Trackers: they accept the metrics of training, and training can contain their exceptions."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loopkit.components.tracker import RunInfo
from loopkit.testing.component_under_test import ComponentUnderTest
from loopkit.testing.rules import Violation, rule

KIND = ("tracker",)
METRICS = {"loss": 3.2, "ce/1": 3.3, "state_norm/4": 12.0, "eval/2/loss": 3.1, "tokens": 4096}


def _call(method: str, function: Callable[[], Any]) -> Exception | None:
    """Call a method and return its exception; one that training cannot contain is a violation."""
    try:
        function()
    except Exception as error:
        return error
    except BaseException as error:
        hint = "raise an Exception: training disables the tracker and continues"
        raise Violation(f"its {method}() ends the process", type(error).__name__, hint) from error
    return None


@rule("logs", KIND, after=("builds",))
def logs(subject: ComponentUnderTest) -> None:
    """It opens, accepts metrics of any name, and closes, without an exception."""
    for status in ("finished", "interrupted", "failed"):
        with TemporaryDirectory() as folder:
            run, tracker = RunInfo("kit", Path(folder), {"seed": 1}), subject.build()
            calls: list[tuple[str, Callable[[], Any]]] = [
                ("open", partial(tracker.open, run)),
                ("log", partial(tracker.log, 1, METRICS)),
                ("log", partial(tracker.log, 2, {})),
                ("close", partial(tracker.close, status)),
            ]
            for method, function in calls:
                error = _call(method, function)
                if error is not None:
                    raise Violation(f"its {method}() fails", f"{type(error).__name__}: {error}") from error


@rule("closes early", KIND, after=("logs",))
def closes_early(subject: ComponentUnderTest) -> None:
    """It can be closed without having been opened, because a start may fail earlier."""
    error = _call("close", lambda: subject.build().close("failed"))
    if error is not None:
        raise Violation("close() fails if open() was not called", f"{type(error).__name__}: {error}") from error


@rule("stays inside", KIND, after=("logs",))
def stays_inside(subject: ComponentUnderTest) -> None:
    """It writes only into the folder of the run, and does not change the metrics."""
    working_folder = Path.cwd()
    with TemporaryDirectory() as folder, TemporaryDirectory() as elsewhere:
        os.chdir(elsewhere)
        try:
            tracker, metrics = subject.build(), dict(METRICS)
            tracker.open(RunInfo("kit", Path(folder), {}))
            tracker.log(1, metrics)
            tracker.close("finished")
            written = sorted(path.name for path in Path(elsewhere).iterdir())
        finally:
            os.chdir(working_folder)
    if written:
        raise Violation("it writes into the current folder", ", ".join(written), "write below run.folder")
    if metrics != METRICS:
        raise Violation("it changes the metrics", str(set(metrics) ^ set(METRICS)))
