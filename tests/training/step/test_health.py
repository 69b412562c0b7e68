"""Health events are detected, logged and handled as the recipe states."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopkit.loop import Batch
from loopkit.runs import RunFolder, read_events, read_metrics, read_provenance
from loopkit.training.errors import NotFinite, Unhealthy
from loopkit.training.step.engine import Engine
from loopkit.training.step.health import HealthMonitor, History
from loopkit.training.step.metrics import StepValues
from tests.training.conftest import Maker
from tests.training.runs import assert_same_bits, fit, lines, tensors

STAGE = "train.deepspeed={{zero_optimization: {{stage: {}}}}}"


def health(recipe: Maker, *overrides: str) -> HealthMonitor:
    return HealthMonitor(recipe(*(f"train.health.{text}" for text in overrides)).train.health)


def values(loss: float = 1.0, norm: float = 1.0, grad_norm: float | None = 1.0) -> StepValues:
    return StepValues({"loss": loss, "state_norm/1": norm / 2, "state_norm/2": norm}, grad_norm)


def poison(monkeypatch: pytest.MonkeyPatch, *samples: int) -> None:
    """Make the gradients of some sequences of the stream NaN."""
    real = Engine.micro_step

    def poisoned(self: Engine, batch: Batch, *arguments: Any) -> Any:
        if not set(batch.sample.tolist()) & set(samples):
            return real(self, batch, *arguments)
        handle = self.trained[-1].register_hook(lambda gradient: gradient * math.nan)
        try:
            return real(self, batch, *arguments)
        finally:
            handle.remove()

    monkeypatch.setattr(Engine, "micro_step", poisoned)


def test_default_checks_only_finiteness(recipe: Maker) -> None:
    monitor = health(recipe)
    assert not monitor.checks_every_step
    assert monitor.check(3, values(1e9, 1e9), History((1.0,) * 100), "ab") is None
    event = monitor.check(3, values(norm=math.inf), History(), "ab")
    assert event is not None
    assert event.record() == {
        "step": 3,
        "event": "not_finite",
        "action": "stop",
        "what": "the state of loop 1 is inf",
        "value": None,
        "limit": None,
        "batch_sha": "ab",
    }


def test_state_above_its_limit_is_an_event(recipe: Maker) -> None:
    monitor = health(recipe, "state_norm={limit: 8, action: warn}")
    assert monitor.checks_every_step
    assert monitor.check(1, values(norm=8.0), History(), "") is None
    event = monitor.check(1, values(norm=8.5), History(), "")
    assert event is not None
    assert (event.kind, event.action, event.value, event.limit) == ("state_norm", "warn", 8.5, 8.0)
    assert "loop 2" in event.what


def test_spike_is_relative_to_recent_losses(recipe: Maker) -> None:
    monitor = health(recipe, "loss_spike={num_std: 4, window: 9, action: rewind}")
    losses = (2.0, 2.2, 1.8, 2.1, 1.9, 2.0, 2.3, 1.7, 2.0)  # median 2, median distance 0.1
    limit = 2 + 4 * 1.4826 * 0.1
    assert monitor.check(1, values(loss=99.0), History(losses[1:]), "") is None  # too few losses
    assert monitor.check(1, values(loss=limit - 1e-6), History(losses), "") is None
    event = monitor.check(1, values(loss=limit + 1e-6), History(losses), "")
    assert event is not None
    assert (event.kind, event.action, event.limit) == ("loss_spike", "rewind", pytest.approx(limit))
    flat = History((2.0,) * 9)  # without the floor, rounding would count as a spike
    assert monitor.check(1, values(loss=2.07), flat, "") is None
    assert monitor.check(1, values(loss=2.09), flat, "") is not None


def test_loss_window_contains_only_taken_steps(recipe: Maker) -> None:
    monitor, history = health(recipe, "loss_spike={num_std: 4, window: 8}"), History(skips=3)
    for loss in range(12):
        history = monitor.extend(history, values(float(loss)))
    assert history == History(tuple(map(float, range(4, 12))))
    assert health(recipe).extend(history, values()).losses == ()


@pytest.mark.parametrize(
    ("action", "history", "option"),
    [("skip_step", History(skips=2), "max_skips"), ("rewind", History(rewinds=2), "max_rewinds")],
)
def test_repeated_skips_or_rewinds_stop(recipe: Maker, action: str, history: History, option: str) -> None:
    monitor = health(recipe, f"not_finite={action}", f"{option}=2")
    events = [monitor.gradient_event(5, math.inf, past, "") for past in (History(skips=1, rewinds=1), history)]
    assert [event.action for event in events] == [action, "stop"]
    assert option in events[1].what


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_skipped_step_changes_nothing(
    recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: int
) -> None:
    """This includes ZeRO stages, on which only the partitioned gradient contains the NaN."""
    resolved = recipe(
        "train.health.not_finite=skip_step", "train.steps=4", "train.checkpoint.every=1", STAGE.format(stage)
    )
    poison(monkeypatch, 17)  # the third step reads 16 to 23
    fit(resolved, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert [line["step"] for line in read_metrics(folder.metrics)] == [1, 2, 4]
    (event,) = read_events(folder.metrics)
    assert (event["step"], event["event"], event["action"]) == (3, "not_finite", "skip_step")
    assert "gradient" in event["what"]
    before, after, last = (tensors(folder.path, step) for step in (2, 3, 4))
    learned = [name for name in before if name.startswith(("weights", "optimizer"))]
    assert all(before[name].equal(after[name]) for name in learned)
    assert not all(after[name].equal(last[name]) for name in learned)
    assert all(value.isfinite().all() for value in last.values())
    state = json.loads((folder.checkpoint(3) / "state.json").read_text())
    assert (state["history"]["skips"], state["data"]["sequences"], state["tokens"]) == (1, 24, 2 * 8 * 16)
    assert json.loads((folder.checkpoint(4) / "state.json").read_text())["history"]["skips"] == 0


def test_state_limit_event_is_skipped_on_every_stage(recipe: Maker, tmp_path: Path) -> None:
    for stage in (0, 1, 2, 3):
        rule = "train.health.state_norm={limit: 1e-9, action: skip_step}"
        with pytest.raises(Unhealthy, match="after 2 steps skipped in a row") as stopped:
            fit(
                recipe(rule, "train.health.max_skips=2", "train.checkpoint.every=1", STAGE.format(stage)),
                tmp_path / f"{stage}",
            )
        assert (stopped.value.exit_code, stopped.value.step) == (3, 3)
        folder = RunFolder(tmp_path / f"{stage}")
        first, last = tensors(folder.path, 0), tensors(folder.path, 2)
        assert all(first[name].equal(last[name]) for name in first if name.startswith("weights"))
        assert [event["action"] for event in read_events(folder.metrics)] == ["skip_step", "skip_step", "stop"]
        assert read_metrics(folder.metrics) == []


def test_rewind_uses_new_data_and_survives_kill(
    recipe: Maker, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = recipe("train.health.not_finite=rewind")
    poison(monkeypatch, 33)  # the fifth step reads 32 to 39; the last checkpoint is of step 3
    fit(resolved, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    events = read_metrics(folder.metrics)
    assert [line["step"] for line in events] == list(range(1, 9))
    (event,) = read_events(folder.metrics)
    assert (event["step"], event["action"], event["to_step"], event["skipped_sequences"]) == (5, "rewind", 3, 16)
    untouched = read_metrics(RunFolder(finished_run).metrics)
    assert [line["batch_sha"] for line in events[:6]] == [untouched[n]["batch_sha"] for n in (0, 1, 2, 5, 6, 7)]
    assert event["batch_sha"] == untouched[4]["batch_sha"]
    # loops depend on the step, not on the data
    assert [line["loops"] for line in events] == [line["loops"] for line in untouched]
    for lost in ((6, 8), (8,)):  # killed before and after a checkpoint contains the rewind
        shutil.copytree(folder.path, tmp_path / f"killed-{len(lost)}")
        for step in lost:
            shutil.rmtree(tmp_path / f"killed-{len(lost)}" / "checkpoints" / f"step-{step:08d}")
        fit(resolved, tmp_path / f"killed-{len(lost)}", resume=True)
        assert_same_bits(folder.path, tmp_path / f"killed-{len(lost)}", 8)
        assert read_events(tmp_path / f"killed-{len(lost)}" / "metrics.jsonl") == [event]


def test_rewinds_are_limited(recipe: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, *range(32, 10_000))
    with pytest.raises(NotFinite, match="after 2 rewinds") as stopped:
        fit(recipe("train.health={not_finite: rewind, max_rewinds: 2}"), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert stopped.value.checkpoint == folder.checkpoint(3)
    assert [event["action"] for event in read_events(folder.metrics)] == ["rewind", "rewind", "stop"]
    assert [event["skipped_sequences"] for event in read_events(folder.metrics)[:2]] == [16, 24]
    assert [line["step"] for line in read_metrics(folder.metrics)] == [1, 2, 3]
    assert read_provenance(folder.provenance)["sessions"][0]["status"] == "failed"


def test_warning_changes_only_the_log(recipe: Maker, finished_run: Path, tmp_path: Path) -> None:
    fit(recipe("train.health.state_norm={limit: 1e-9, action: warn}"), tmp_path / "run")
    assert [event["step"] for event in read_events(tmp_path / "run" / "metrics.jsonl")] == list(range(1, 9))
    assert_same_bits(finished_run, tmp_path / "run", 8)


def test_recent_losses_are_part_of_a_checkpoint(recipe: Maker, tmp_path: Path) -> None:
    resolved = recipe("train.health.loss_spike={num_std: 50, window: 8}")
    fit(resolved, tmp_path / "run")
    state = json.loads((RunFolder(tmp_path / "run").checkpoint(6) / "state.json").read_text())
    assert state["history"]["losses"] == [line["loss"] for line in lines(tmp_path / "run")[:6]]


def test_non_finite_event_is_valid_json(recipe: Maker) -> None:
    event = replace(health(recipe).gradient_event(2, math.nan, History(), "ab"), value=math.nan)
    assert json.loads(json.dumps(event.record(to_step=1), allow_nan=False))["value"] is None
