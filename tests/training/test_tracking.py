"""A tracker that fails is dropped, and training goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loopkit.components.tracker import RunInfo, Tracker
from loopkit.training.tracking import Trackers, flatten


class Fake:
    """A spec that builds what it was given."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def build(self) -> Tracker:
        return self.tracker


class Recorder(Tracker):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, run: RunInfo) -> None:
        self.calls.append(run.name)

    def log(self, step: int, metrics: Any) -> None:
        self.calls.append((step, dict(metrics)))

    def close(self, status: str) -> None:
        self.calls.append(status)


class Broken(Recorder):
    def log(self, step: int, metrics: Any) -> None:
        super().log(step, metrics)
        raise ConnectionError("service is down")


def test_one_failure_costs_one_line_and_one_tracker() -> None:
    said: list[str] = []
    good, bad = Recorder(), Broken()
    trackers = Trackers({"bad": Fake(bad), "good": Fake(good)}, said.append)  # type: ignore[dict-item]
    trackers.open(RunInfo("r", Path("runs/r"), {}))
    for step in (1, 2):
        trackers.log(step, {"loss": 1.0})
    trackers.close("finished")
    assert good.calls == ["r", (1, {"loss": 1.0}), (2, {"loss": 1.0}), "finished"]
    assert bad.calls == ["r", (1, {"loss": 1.0})]
    assert said == ["tracker bad is off for the rest of this run: ConnectionError: service is down"]


def test_metrics_are_flat_finite_numbers() -> None:
    line = {
        "step": 3,
        "ce": [None, 2.0],
        "regularizers": {"jsrr": 0.5},
        "mfu": None,
        "batch_sha": "ab",
        "bad": float("inf"),
    }
    assert flatten(line) == [("step", 3), ("ce/2", 2.0), ("regularizers/jsrr", 0.5)]
