"""Trackers: they take what training logs, and an exception of theirs can be contained."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loopkit.components.tracker import RunInfo
from loopkit.testing.case import Violation, rule
from loopkit.testing.component_under_test import ComponentUnderTest

KIND = ("tracker",)
METRICS = {"loss": 3.2, "ce/1": 3.3, "state_norm/4": 12.0, "eval/2/loss": 3.1, "tokens": 4096}


def _contained(what: str, act: Callable[[], Any]) -> Exception | None:
    """Do something that may fail; what training could not contain is a violation."""
    try:
        act()
    except Exception as error:
        return error
    except BaseException as error:
        hint = "raise an Exception: training switches the tracker off and goes on"
        raise Violation(f"its {what} ends the process", type(error).__name__, hint) from error
    return None


@rule("logs", KIND, after=("builds",))
def logs(subject: ComponentUnderTest) -> None:
    """It opens, takes metrics of every name and number, and closes; what fails can be contained."""
    for status in ("finished", "interrupted", "failed"):
        with TemporaryDirectory() as folder:
            run, tracker = RunInfo("kit", Path(folder), {"seed": 1}), subject.build()
            acts: list[tuple[str, Callable[[], Any]]] = [
                ("open", partial(tracker.open, run)),
                ("log", partial(tracker.log, 1, METRICS)),
                ("log", partial(tracker.log, 2, {})),
                ("close", partial(tracker.close, status)),
            ]
            for what, act in acts:
                error = _contained(what, act)
                if error is not None:
                    raise Violation(f"its {what} fails", f"{type(error).__name__}: {error}") from error


@rule("closes early", KIND, after=("logs",))
def closes_early(subject: ComponentUnderTest) -> None:
    """It can be closed without ever having been opened, since a start may fail before."""
    error = _contained("close", lambda: subject.build().close("failed"))
    if error is not None:
        raise Violation("it cannot be closed unopened", f"{type(error).__name__}: {error}") from error


@rule("stays inside", KIND, after=("logs",))
def stays_inside(subject: ComponentUnderTest) -> None:
    """It writes into the run's folder and not into the current one, and leaves the metrics as they are."""
    here = Path.cwd()
    with TemporaryDirectory() as folder, TemporaryDirectory() as elsewhere:
        os.chdir(elsewhere)
        try:
            tracker, metrics = subject.build(), dict(METRICS)
            tracker.open(RunInfo("kit", Path(folder), {}))
            tracker.log(1, metrics)
            tracker.close("finished")
            left = sorted(path.name for path in Path(elsewhere).iterdir())
        finally:
            os.chdir(here)
    if left:
        raise Violation("it writes into the current folder", ", ".join(left), "write below run.folder")
    if metrics != METRICS:
        raise Violation("it changes the metrics that it is given", str(set(metrics) ^ set(METRICS)))
