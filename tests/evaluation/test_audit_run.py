"""The audit of a run's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from loopkit.evaluation import TrainedDepths
from loopkit.evaluation.audit import audit_run
from loopkit.evaluation.audit.run import trained_depths
from loopkit.model import save_weights
from loopkit.runs import CheckpointProblem, NoRun, RunFolder
from loopkit.runs.checkpoint import TOKENIZER, WEIGHTS, begin_checkpoint, publish_checkpoint
from tests.evaluation.conftest import Case


@pytest.fixture(scope="module")
def runs(make_case: Callable[..., Case], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with initial weights: ``blind`` and ``raw``."""
    root = tmp_path_factory.mktemp("runs")
    for name, override in (("blind", "model.readout=norm"), ("raw", "model.readout=raw")):
        case = make_case(override)
        folder = RunFolder(root / name).create()
        folder.resolved.write_text(case.recipe.to_yaml())
        partial = begin_checkpoint(folder.checkpoints, 3)
        save_weights(case.model, partial / WEIGHTS)
        case.prepared.tokenizer.save(partial / TOKENIZER)
        publish_checkpoint(partial, 3)
    return root


def test_both_verdicts(runs: Path, tmp_path: Path) -> None:
    blind = audit_run("blind", root=runs, cache=tmp_path)
    assert blind.subject == "blind, step-00000003"
    assert blind.scale.verdict == "blind spot"
    assert "raw" in blind.remedies["model.readout"]
    assert blind.recurrence.verdict in ("stable", "unstable")
    assert [radius.depth for radius in blind.recurrence.radii] == [1, 4]
    assert all(radius.mean <= radius.max for radius in blind.recurrence.radii)
    raw = audit_run(runs / "raw", cache=tmp_path)
    assert raw.scale.verdict == "controlled"
    assert raw.scale.visible


def test_audit_is_repeatable(runs: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    first, second = (audit_run("raw", root=runs, cache=tmp_path).to_json() for _ in range(2))
    assert first == second
    assert torch.get_num_threads() == threads


def test_missing_runs_and_checkpoints_are_reported(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(NoRun, match="blind, raw"):
        audit_run("other", root=runs)
    with pytest.raises(CheckpointProblem, match="steps: 3"):
        audit_run("raw", step=5, root=runs)


def test_audit_measures_the_trained_depths() -> None:
    assert trained_depths(TrainedDepths(4, 4, 4.0)) == [4]
    assert trained_depths(TrainedDepths(1, 30, 8.4)) == [1, 8, 30]
    assert trained_depths(TrainedDepths(1, 256, 33.0)) == [1, 33, 64]
    assert trained_depths(TrainedDepths(1, 256, 33.0), max_depth=8) == [1, 8]
