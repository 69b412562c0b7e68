"""The benchmark times the same steps as training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.cost.flops import StepFlops
from loopkit.loop import Batch, Trajectory
from loopkit.recipe import Recipe, load_recipe
from loopkit.training import bench as timing
from loopkit.training.distributed.process_group import join
from loopkit.training.step.engine import Engine
from loopkit.training.step.out_of_memory import OutOfMemory


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Eight sequences a step in micro-batches of two, from one to four loops; its data does not exist."""
    from tests.training.conftest import RECIPE

    (tmp_path / "tiny.yaml").write_text(RECIPE)
    return load_recipe(tmp_path / "tiny.yaml", (), ["train.start_from=nowhere"])


def test_timed_steps_are_complete_and_equal(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    updates: list[float] = []
    micro_step, update = Engine.micro_step, Engine.update

    def watched(self: Engine, batch: Batch, loops: object, number: int, *shares: float) -> object:
        seen.append((number, loops.total))  # type: ignore[attr-defined]
        assert batch.tokens.shape == (2, 16)
        assert int(batch.tokens.max()) < 50
        return micro_step(self, batch, loops, number, *shares)  # type: ignore[arg-type]

    def counted(self: Engine, lr: float) -> object:
        updates.append(lr)
        return update(self, lr)

    monkeypatch.setattr(Engine, "micro_step", watched)
    monkeypatch.setattr(Engine, "update", counted)
    messages: list[str] = []
    result = timing.bench(recipe, join("cpu"), vocabulary=50, steps=2, say=messages.append)
    mean = round(recipe.train.schedule.build().mean)
    assert seen == [(timing.LATE_STEP + step, mean) for step in range(3) for _ in range(4)], "one to warm up, and two"
    assert len(updates) == 3
    assert messages[0] == f"one step to warm up and 2 to time, each of 8 sequences at {mean} loops"
    assert [text.split(":")[0] for text in messages[1:]] == ["warm-up", "step 1 of 2", "step 2 of 2"]
    assert (result["loops"], result["micro_batch"], result["accumulation"]) == (mean, 2, 4)


def test_regularizer_with_late_start_is_timed(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    from loopkit.components.regularizer.jacobian import JSRR

    called: list[int] = []

    def counted(self: JSRR, t: Trajectory) -> torch.Tensor:
        called.append(t.reached)
        return t.state(t.reached).mean()

    monkeypatch.setattr(JSRR, "forward", counted)
    late = load_recipe(recipe.path or "", (), ["objective.regularizers.jsrr={start_step: 2000}", "train.steps=4000"])
    timing.bench(late, join("cpu"), vocabulary=50, steps=1)
    assert len(called) == 2 * 4, "in every micro-step of both steps"


def test_figures_follow_from_the_clock(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    lasted = iter([9.0, 2.0, 4.0, 3.0])
    monkeypatch.setattr(timing, "_time_step", lambda *_: next(lasted))
    rates = iter([5e6, 8e6])
    monkeypatch.setattr("loopkit.cost.hardware.measure_matmul_rate", lambda *_: next(rates))
    result = timing.bench(recipe, join("cpu"), vocabulary=50, loops=3, steps=3)
    assert result["step_s"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert result["tokens_per_s"] == pytest.approx(8 * 16 / 3.0)
    from loopkit.model import build_model
    from loopkit.objective import build_objective

    model = build_model(recipe.model, vocabulary=50, max_length=16, max_loops=4, device="meta")
    flops = StepFlops(model, build_objective(recipe.objective).supervision, length=16, max_loops=4)
    assert result["flops_per_step"] == pytest.approx(8 * 16 * flops.per_token(3, 3))
    assert result["mfu"] == pytest.approx(result["flops_per_step"] / 3.0 / 8e6), (
        "of the better of two measured ceilings"
    )


def test_out_of_memory_is_reported_as_in_training(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(timing, "_time_step", full)
    with pytest.raises(OutOfMemory, match=r"the micro-batch is 2: try --set train\.micro_batch=1"):
        timing.bench(recipe, join("cpu"), vocabulary=50)


def test_the_command(tmp_path: Path) -> None:
    words = ["bench", "wikitext_44m_raw", "--profile", "smoke", "--steps", "1"]
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["device"] == "cpu"
    assert result["ranks"] == 1
    assert 0 < result["mfu"] < 10
    assert result["peak_memory_bytes"] > 2**20
    messages = CliRunner().invoke(main, [*words, "--loops", "2"])
    assert "loops        2, gradients through 2" in messages.stdout
    assert all(len(line.rstrip()) <= 80 for line in messages.stdout.splitlines())


def test_unknown_vocabulary_must_be_passed() -> None:
    done = CliRunner().invoke(main, ["bench", "addition_stars", "--profile", "smoke"])
    assert done.exit_code == 2
    assert "give --vocabulary N" in done.output
