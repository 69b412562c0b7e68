"""A tracker that fails is dropped, and training goes on."""

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


class Absent:
    """A spec whose package is not installed."""

    def build(self) -> Tracker:
        raise MissingPackage("tracker far needs the package far")


def test_a_missing_package_stops_a_start_but_not_a_resume() -> None:
    said: list[str] = []
    with pytest.raises(MissingPackage, match=r"needs the package far.*--set trackers\.far=false"):
        Trackers({"far": Absent()}, said.append, strict=True)  # type: ignore[dict-item]
    Trackers({"far": Absent()}, said.append).log(1, {"loss": 1.0})  # type: ignore[dict-item]
    assert len(said) == 1
    assert "tracker far is off" in said[0]


def test_a_fault_that_is_no_missing_package_is_only_said_even_at_a_start() -> None:
    said: list[str] = []
    trackers = Trackers({"bad": Fake(Broken())}, said.append, strict=True)  # type: ignore[dict-item]
    trackers.log(1, {"loss": 1.0})
    assert len(said) == 1


def test_evaluations_reach_trackers(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []
    monkeypatch.setattr(Trackers, "log", lambda self, step, metrics: seen.append((step, dict(flatten(metrics)))))
    fit(recipe("train.steps=2", "evaluate.every=1"), tmp_path / "run")
    found = {step: numbers for step, numbers in seen if "eval/1/loss" in numbers}
    assert set(found) == {1, 2}
    assert {"eval/1/loss", "eval/2/loss"} <= set(found[1])


def test_terms_of_the_supervision_are_logged(recipe: Maker, tmp_path: Path) -> None:
    exits = ("model.gate=linear", "objective.supervision={type: exit_weighted, entropy: 0.1}", "train.steps=1")
    fit(recipe(*exits, "train.schedule={type: fixed, loops: 3}"), tmp_path / "run")
    (line,) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert set(line["terms"]) == {"exit_entropy", "exit_mean"}
    assert 1 <= line["terms"]["exit_mean"] <= 3
