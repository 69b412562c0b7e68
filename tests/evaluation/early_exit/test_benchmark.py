"""The early-exit benchmark on a small model from a recipe."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from loopkit.components.exit import Depth, Exit, GateCdf, LogitMargin, StateDelta
from loopkit.data import prepare
from loopkit.evaluation import ModelSource, TrainedDepths
from loopkit.evaluation.early_exit.benchmark import exit_benchmark
from loopkit.evaluation.early_exit.timing import ContenderTiming, Scored, race
from loopkit.evaluation.settings import ExitBenchmarkSettings
from loopkit.loop import Loops, Trajectory

MakeCase = Callable[..., Any]
TRAINED = TrainedDepths(4, 4, 4.0)


def run(case: Any, exits: dict[str, Exit] | None = None, **options: Any) -> dict[str, Any]:
    exits = {"logit_margin": LogitMargin()} if exits is None else exits
    origin, trained = options.pop("origin", None), options.pop("trained", TRAINED)
    settings = ExitBenchmarkSettings(**{"sequences": 6, "batch": 4, "repeats": 1} | options)
    return exit_benchmark(case.model, case.prepared, exits, settings, trained=trained, origin=origin)


def test_reports_all_conditions(make_case: MakeCase) -> None:
    record = run(make_case(), origin=ModelSource(run="a_run", step=3), repeats=3)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["run"] == "a_run"
    assert record["dtype"] == "fp32"
    assert record["device"] == "cpu"
    assert record["machine"]["cores"] >= 1
    assert (record["batch"], record["window"], record["loops"], record["tolerance"]) == (4, 32, 4, 0.01)
    for slice_, first in (("calibration", 0), ("timed", 6)):
        assert record[slice_]["split"] == "validation"
        assert record[slice_]["first_sequence"] == first
        assert record[slice_]["sequences"] == 6
        assert record[slice_]["tokens_scored"] == 6 * 32
    assert [row["depth"] for row in record["frontier"]] == [1, 2, 3, 4]
    assert [row["trained"] for row in record["frontier"]] == [False, False, False, True]
    assert record["fixed"] == record["frontier"][-1]
    exit = record["exits"]["logit_margin"]
    assert set(exit) <= set(record["units"]) | {"type", "level", "calibration", "not_finite"}
    for row in [*record["frontier"], exit]:
        assert len(row["seconds"]) == 3
        assert row["tokens_per_s"] == pytest.approx(6 * 32 / sorted(row["seconds"])[1])


def test_perplexities_use_only_the_timed_slice(make_case: MakeCase) -> None:
    case = make_case()
    case.model.eval()
    record = run(case)
    scoring = case.prepared.splits["validation"].scoring(32)
    rows = scoring.batch(range(6, 12))
    with torch.no_grad():
        for row in record["frontier"]:
            loss = case.model.run(rows, Loops.fixed(row["depth"])).nll([row["depth"]]).double().mean().item()
            assert row["loss"] == pytest.approx(loss, rel=1e-6)
            assert row["token_ppl"] == pytest.approx(math.exp(loss), rel=1e-6)


def test_lowest_and_highest_threshold(make_case: MakeCase) -> None:
    case = make_case()
    eager = run(case, {"depth": Depth()}, tolerance=1e9)
    first, exit = eager["frontier"][0], eager["exits"]["depth"]
    assert exit["exits_by_loop"] == [6, 0, 0, 0]
    assert exit["average_loops"] == 1.0
    assert exit["threshold"] == 1.0
    assert exit["loss"] == pytest.approx(first["loss"], rel=1e-6)
    assert exit["core_calls"] == 2
    assert exit["core_sequences"] == 6
    assert exit["ppl_change"] == pytest.approx(first["token_ppl"] / eager["fixed"]["token_ppl"] - 1, rel=1e-5)
    never = run(case, {"depth": Depth()}, tolerance=-1 + 1e-9)
    exit = never["exits"]["depth"]
    assert exit["exits_by_loop"] == [0, 0, 0, 6]
    assert "threshold" not in exit
    assert exit["loss"] == never["fixed"]["loss"]
    assert exit["ppl_change"] == 0.0
    assert exit["core_sequences"] == 24
    assert "no sequence stops early" in never["notes"][0]


class AlwaysReady(LogitMargin):
    """Gives every token the same score."""

    def score(self, t: Trajectory, k: int) -> Tensor:
        return torch.ones(t.batch.tokens.shape)


def test_exit_with_one_depth_is_noted(make_case: MakeCase) -> None:
    record = run(make_case(), {"depth": Depth(), "ready": AlwaysReady()}, tolerance=1e9)
    assert record["exits"]["ready"]["exits_by_loop"] == [6, 0, 0, 0]
    (note,) = record["notes"]
    assert note.startswith("ready: of 6 sequences, all stop after loop 1, so the exit acts as a fixed depth of 1")


def test_stopped_sequences_leave_the_core(make_case: MakeCase) -> None:
    record = run(make_case(), {"margin": LogitMargin(), "state": StateDelta()}, tolerance=0.5, sequences=13, batch=13)
    for exit in record["exits"].values():
        by_loop = exit["exits_by_loop"]
        assert sum(by_loop) == 13
        loops = sum(k * count for k, count in enumerate(by_loop, start=1))
        assert exit["core_sequences"] == loops
        assert exit["average_loops"] == pytest.approx(loops / 13)
        assert exit["core_calls"] == max(k for k, count in enumerate(by_loop, start=1) if count)


def test_calibration_respects_its_bound(make_case: MakeCase) -> None:
    for tolerance in (0.0, 0.02, 0.1):
        calibrated = run(make_case(), tolerance=tolerance)["exits"]["logit_margin"]["calibration"]
        assert calibrated["loss"] <= calibrated["bound"]["loss"] + 1e-12
        assert len(calibrated["tried"]) == 52
        bound = calibrated["bound"]["loss"]
        within = [trial["average_loops"] for trial in calibrated["tried"] if trial["loss"] <= bound]
        assert calibrated["average_loops"] == min(within)


def test_read_as_trained(make_case: MakeCase) -> None:
    case = make_case("model.readout=final_only")
    as_depth, as_trained = (run(case, {"depth": Depth()}, read_as=how, tolerance=1e9) for how in ("depth", "trained"))
    assert as_depth["frontier"][0]["loss"] != pytest.approx(as_trained["frontier"][0]["loss"], rel=1e-4)
    assert as_depth["fixed"]["loss"] == as_trained["fixed"]["loss"]
    for record in (as_depth, as_trained):
        assert record["exits"]["depth"]["loss"] == pytest.approx(record["frontier"][0]["loss"], rel=1e-6)


def test_calibrates_on_another_split(make_case: MakeCase) -> None:
    case = make_case()
    both = replace(case, prepared=prepare(case.recipe.data, splits=["train", "validation"]))
    record = run(both, calibrate_on="train")
    assert (record["calibration"]["split"], record["calibration"]["first_sequence"]) == ("train", 0)
    assert (record["timed"]["split"], record["timed"]["first_sequence"]) == ("validation", 0)


def test_default_slices_are_halves_of_the_split(make_case: MakeCase) -> None:
    case = make_case()
    available = len(case.prepared.splits["validation"].scoring(32))
    record = run(case, {}, sequences=None)
    assert record["calibration"]["sequences"] == record["timed"]["sequences"] == available // 2
    assert record["exits"] == {}


def test_more_loops_than_trained(make_case: MakeCase) -> None:
    record = run(make_case(), loops=6)
    assert [row["trained"] for row in record["frontier"]] == [False, False, False, True, False, False]
    assert len(record["exits"]["logit_margin"]["exits_by_loop"]) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequences": 10_000}, "half of validation contains .* sequences, not 10,000"),
        ({"sequences": 0}, "at least one sequence"),
        ({"loops": 1}, "needs at least 2 loops, not 1"),
        ({"repeats": 0}, "repeats must be at least 1, not 0"),
        ({"split": "test"}, "split 'test' was not prepared"),
        ({"calibrate_on": "validation"}, "is also the timed split"),
    ],
)
def test_invalid_settings_are_rejected(make_case: MakeCase, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(make_case(), **options)


def test_gate_exit_needs_a_gate(make_case: MakeCase) -> None:
    with pytest.raises(ValueError, match=r"set model\.gate"):
        run(make_case(), {"gate": GateCdf()})


def test_restores_the_mode_of_the_model(make_case: MakeCase) -> None:
    case = make_case()
    case.model.train()
    run(case)
    assert case.model.training
    assert not case.model.core._forward_pre_hooks
    case.model.eval()


def test_contenders_alternate_after_an_untimed_run(make_case: MakeCase) -> None:
    ran: list[str] = []

    def contender(name: str) -> Callable[[], Scored]:
        def go() -> Scored:
            ran.append(name)
            return Scored(0.0, torch.ones(1))

        return go

    timings: dict[str, ContenderTiming] = race(make_case().model, {name: contender(name) for name in "abc"}, 3)
    assert "".join(ran) == "abc" + "abc" + "cba" + "abc"
    assert all(len(outcome.seconds) == 3 for outcome in timings.values())
