"""A failing tracker is dropped and training continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopkit.components.tracker import RunInfo, Tracker
from loopkit.registry import MissingPackage
from loopkit.runs import read_metrics
from loopkit.training.display.tracking import Trackers, flatten
from tests.training.conftest import Maker
from tests.training.runs import fit


class Fake:
    """A spec that returns a given object."""

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


def test_failing_tracker_is_dropped_with_one_message() -> None:
    messages: list[str] = []
    good, bad = Recorder(), Broken()
    trackers = Trackers({"bad": Fake(bad), "good": Fake(good)}, messages.append)  # type: ignore[dict-item]
    trackers.open(RunInfo("r", Path("runs/r"), {}))
    for step in (1, 2):
        trackers.log(step, {"loss": 1.0})
    trackers.close("finished")
    assert good.calls == ["r", (1, {"loss": 1.0}), (2, {"loss": 1.0}), "finished"]
    assert bad.calls == ["r", (1, {"loss": 1.0})]
    assert messages == ["tracker bad is off for the rest of this run: ConnectionError: service is down"]


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


class Absent:
    """A spec whose package is not installed."""

    def build(self) -> Tracker:
        raise MissingPackage("tracker far needs the package far")


def test_missing_package_is_fatal_only_at_start() -> None:
    messages: list[str] = []
    with pytest.raises(MissingPackage, match=r"needs the package far.*--set trackers\.far=false"):
        Trackers({"far": Absent()}, messages.append, strict=True)  # type: ignore[dict-item]
    Trackers({"far": Absent()}, messages.append).log(1, {"loss": 1.0})  # type: ignore[dict-item]
    assert len(messages) == 1
    assert "tracker far is off" in messages[0]


def test_other_tracker_errors_at_start_only_warn() -> None:
    messages: list[str] = []
    trackers = Trackers({"bad": Fake(Broken())}, messages.append, strict=True)  # type: ignore[dict-item]
    trackers.log(1, {"loss": 1.0})
    assert len(messages) == 1


def test_evaluations_reach_trackers(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []
    monkeypatch.setattr(Trackers, "log", lambda self, step, metrics: seen.append((step, dict(flatten(metrics)))))
    fit(recipe("train.steps=2", "evaluate.every=1"), tmp_path / "run")
    evaluations = {step: numbers for step, numbers in seen if "eval/1/loss" in numbers}
    assert set(evaluations) == {1, 2}
    assert {"eval/1/loss", "eval/2/loss"} <= set(evaluations[1])


def test_terms_of_the_supervision_are_logged(recipe: Maker, tmp_path: Path) -> None:
    exits = ("model.gate=linear", "objective.supervision={type: exit_weighted, entropy: 0.1}", "train.steps=1")
    fit(recipe(*exits, "train.schedule={type: fixed, loops: 3}"), tmp_path / "run")
    (line,) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert set(line["terms"]) == {"exit_entropy", "exit_mean"}
    assert 1 <= line["terms"]["exit_mean"] <= 3
