"""Trackers hand over what they are given; their packages are needed when they are used, and not before."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from loopkit.components.tracker import RunInfo, TensorBoard, Tracker, Trackio, WeightsAndBiases
from loopkit.recipe import component
from loopkit.registry import MissingPackage

RECIPE = {"seed": 3, "train": {"lr": {"type": "constant", "peak": 1e-3}}}


def info(folder: Path, resumed_from: int = 0) -> RunInfo:
    return RunInfo("tiny", folder, RECIPE, {}, resumed_from)


def use(tracker: Tracker, run: RunInfo, *steps: int, status: str = "finished") -> None:
    tracker.open(run)
    for step in steps:
        tracker.log(step, {"loss": 10.0 / step, "ce/2": 0.5 * step})
    tracker.close(status)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_missing_package_error_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopkit.registry.packages.is_installed", lambda _: False)
    with pytest.raises(MissingPackage, match=rf"{name}.*the package {name}.*pip install 'loopkit\[track\]'"):
        component("tracker", name).build()


def test_the_file_imports_none_of_them() -> None:
    code = (
        "import sys, loopkit.components.tracker; "
        "print([name for name in ('torch', 'tensorboard', 'wandb', 'trackio') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("tracker", [TensorBoard, WeightsAndBiases, Trackio])
def test_closing_an_unopened_tracker_does_nothing(tracker: type[Tracker]) -> None:
    """Its package need not be there: the start of a run may fail before any tracker is opened."""
    tracker().close("failed")


def test_tensorboard_files_hide_repeated_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    use(TensorBoard(), info(tmp_path), 1, 2, 3, 4, status="interrupted")
    use(TensorBoard(), info(tmp_path, resumed_from=2), 3, 4, 5)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [
        (step, pytest.approx(10.0 / step)) for step in (1, 2, 3, 4, 5)
    ]
    assert set(events.Tags()["scalars"]) == {"loss", "ce/2"}
    (text,) = events.Tensors("recipe/text_summary")
    assert '"peak": 0.001' in text.tensor_proto.string_val[0].decode()


class FakeRun:
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def define_metric(self, *names: str, **options: Any) -> None:
        self.calls.append(("define", *names, options))

    def log(self, metrics: dict[str, float], **options: Any) -> None:
        self.calls.append(("log", metrics, options))

    def finish(self, **options: Any) -> None:
        self.calls.append(("finish", options))


def fake(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[list[dict[str, Any]], list[Any]]:
    inits: list[dict[str, Any]] = []
    calls: list[Any] = []

    def init(**options: Any) -> FakeRun:
        inits.append(options)
        return FakeRun(calls)

    module = ModuleType(name)
    module.init = init  # type: ignore[attr-defined]
    module.Settings = lambda **options: SimpleNamespace(**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    return inits, calls


def test_wandb_resumes_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inits, calls = fake(monkeypatch, "wandb")
    use(WeightsAndBiases(project="p", entity="us", mode="offline"), info(tmp_path), 1, status="interrupted")
    use(WeightsAndBiases(project="p"), info(tmp_path, 1), 2)
    assert inits[0]["id"] == inits[1]["id"]
    assert [options["mode"] for options in inits] == ["offline", "online"]
    for options in inits:
        assert (options["project"], options["name"], options["resume"]) == ("p", "tiny", "allow")
        assert options["config"] == RECIPE
    assert ("define", "*", {"step_metric": "step"}) in calls
    assert ("log", {"loss": 5.0, "ce/2": 1.0, "step": 2}, {}) in calls
    assert [call[1]["exit_code"] for call in calls if call[0] == "finish"] == [1, 0]


def test_trackio_resumes_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inits, calls = fake(monkeypatch, "trackio")
    use(Trackio(project="p"), info(tmp_path), 1)
    use(Trackio(project="p"), info(tmp_path, 1), 2)
    assert inits[0]["name"] == inits[1]["name"]
    assert inits[0]["name"].startswith("tiny-")
    assert all((o["resume"], o["config"], o["space_id"]) == ("allow", RECIPE, None) for o in inits)
    assert ("log", {"loss": 5.0, "ce/2": 1.0}, {"step": 2}) in calls


def test_same_name_in_other_folder_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inits, _ = fake(monkeypatch, "trackio")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        use(Trackio(), info(tmp_path / name), 1)
    assert inits[0]["name"] != inits[1]["name"]


def test_wandb_itself_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    use(WeightsAndBiases(mode="offline"), info(tmp_path), 1, 2)
    (written,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert json.loads((tmp_path / "wandb.json").read_text())["id"] in written.name
    assert written.stat().st_size > 0


def test_trackio_itself(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    code = f"""
from pathlib import Path
from loopkit.components.tracker import RunInfo, Trackio
for steps, done in (((1, 2), 0), ((2, 3), 1)):
    tracker = Trackio(project="p")
    tracker.open(RunInfo("tiny", Path({str(tmp_path)!r}), {RECIPE!r}, {{}}, done))
    for step in steps:
        tracker.log(step, {{"loss": 10.0 / step}})
    tracker.close("finished")
"""
    import os

    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "db")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (database,) = (tmp_path / "db").glob("*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step, metrics from metrics order by id").fetchall()
    assert len({name for name, *_ in rows}) == 1
    assert [(step, json.loads(metrics)["loss"]) for _, step, metrics in rows] == [
        (1, 10.0),
        (2, 5.0),
        (2, 5.0),
        (3, 10 / 3),
    ]
