"""Metrics of micro-steps equal those of one pass over the batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from loopkit.loop import IGNORE, Batch, Loops
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.metrics import Counts, MicroStepMetrics, StepMetrics, StepValues, metrics_record

ALONE = Process(0, 1, 0, torch.device("cpu"))


def measured(**values: float) -> MicroStepMetrics:
    names = tuple(name.replace("_K", "/") for name in values)
    return MicroStepMetrics(names, torch.tensor(list(values.values())))


def counts(*, scored: int, tokens: int, loops: int = 2) -> Counts:
    return Counts(tokens, scored, (tokens,) * loops, (scored,) * loops)


def step() -> StepMetrics:
    metrics = StepMetrics()
    metrics.add(measured(loss=1.0, ce_K2=3.0, state_norm_K1=1.0, state_norm_K2=2.0), counts(scored=10, tokens=30))
    metrics.add(measured(loss=3.0, ce_K2=6.0, state_norm_K1=5.0, state_norm_K2=8.0), counts(scored=20, tokens=10))
    return metrics


def test_means_are_weighted_by_their_counts() -> None:
    values = step().read(ALONE, torch.tensor(0.25))
    assert values.loss == 2.0
    assert values.by_loop("ce", 3) == [None, pytest.approx(5.0), None]
    assert values.by_loop("state_norm", 2) == pytest.approx([2.0, 3.5])
    assert values.grad_norm == 0.25
    assert step().tokens == 40


def test_loops_average_only_micro_steps_that_ran() -> None:
    for shift, expected in ((False, [2.0, 7.0]), (True, [3.0, 4.0])):
        metrics = StepMetrics(shift)
        metrics.add(measured(loss=1.0, state_norm_K1=1.0), counts(scored=1, tokens=1, loops=1))
        metrics.add(measured(loss=1.0, state_norm_K1=3.0, state_norm_K2=7.0), counts(scored=1, tokens=1))
        assert metrics.read(ALONE, None).by_loop("state_norm", 2) == expected


def test_loop_counts_only_its_sequences() -> None:
    labels = torch.tensor([[1, 2, 3], [4, IGNORE, IGNORE]])
    batch = Batch.of(torch.zeros(2, 3, dtype=torch.int64), labels)
    result = Counts.of(batch, Loops(3, 3, per_sequence=torch.tensor([3, 1])))
    assert result == Counts(tokens=6, scored=4, tokens_by_loop=(3, 3, 6), scored_by_loop=(3, 3, 4))
    assert Counts.of(batch, Loops.fixed(2)) == Counts(6, 4, (6, 6), (4, 4))


def test_micro_step_without_scored_tokens_is_ignored() -> None:
    metrics = StepMetrics()
    metrics.add(measured(loss=0.0, ce_K1=math.nan), counts(scored=0, tokens=4, loops=1))
    metrics.add(measured(loss=2.0, ce_K1=4.0), counts(scored=3, tokens=4, loops=1))
    assert metrics.read(ALONE, None).by_loop("ce", 1) == [4.0]


def test_reading_moves_one_tensor_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []
    real, noted = torch.Tensor.tolist, calls.append
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: (noted(self.shape), real(self))[1])
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("a second wait for the device"))
    step().read(ALONE, torch.tensor(0.25))
    assert calls == [(9,)]


@pytest.mark.parametrize(
    ("means", "fault"),
    [
        ({"loss": 1.0, "state_norm/1": 1.0, "ce/1": 2.0}, None),
        (
            {"loss": math.nan, "state_norm/1": 1.0, "state_norm/2": math.inf, "ce/2": math.nan},
            "the state of loop 2 is inf",
        ),
        ({"loss": math.nan, "state_norm/2": 1.0, "ce/1": 2.0, "ce/2": math.nan}, "the cross-entropy of loop 2 is nan"),
        ({"loss": math.nan, "regularizers/jsrr": math.nan}, "the regularizer jsrr is nan"),
        ({"loss": -math.inf}, "the loss is -inf"),
    ],
)
def test_first_fault_is_named_with_its_loop(means: dict[str, float | None], fault: str | None) -> None:
    result = StepValues(means, 1.0).fault()
    assert (result and result[0]) == fault


def test_non_finite_gradient_is_a_fault() -> None:
    assert StepValues({"loss": 1.0}, math.inf).fault() == ("the gradient's norm is inf", math.inf)


def test_non_finite_gradient_on_one_rank_affects_all() -> None:
    class Two:
        def sum(self, values: list[float]) -> list[float]:
            # the gradient of the other rank is not finite
            return [*(2 * value for value in values[:-1]), values[-1] + 1.0]

    result = step().read(Two(), torch.tensor(0.25))  # type: ignore[arg-type]
    assert result.fault() is not None
    assert "gradient" in result.fault()[0]


def test_terms_are_averaged_over_scored_tokens() -> None:
    metrics = StepMetrics()
    metrics.add(
        MicroStepMetrics(("loss", "terms/exit_entropy"), torch.tensor([1.0, 2.0])), counts(scored=1, tokens=4, loops=1)
    )
    metrics.add(
        MicroStepMetrics(("loss", "terms/exit_entropy"), torch.tensor([1.0, 6.0])), counts(scored=3, tokens=4, loops=1)
    )
    assert metrics.read(ALONE, None).terms == {"exit_entropy": 5.0}


def test_the_largest_state_is_found() -> None:
    assert StepValues(
        {"loss": 1.0, "state_norm/1": 2.0, "state_norm/2": 9.0, "state_norm/3": 4.0}, None
    ).largest_state() == (2, 9.0)
    assert StepValues({"loss": 1.0}, None).largest_state() == (0, 0.0)


def test_line_has_its_fields_in_order() -> None:
    speed: dict[str, Any] = {"tokens_per_s": 1.0, "mfu": None, "step_s": 1.0, "peak_memory_bytes": 1}
    record = metrics_record(
        StepValues({"loss": 1.0, "ce/2": 1.0, "regularizers/p": 0.1}, None),
        step=1,
        total=2,
        loops_mean=2.0,
        backprop=2,
        lr=0.1,
        grad_norm=0.5,
        tokens=8,
        flops=1e9,
        throughput=speed,
        batch_sha="ab",
    )
    assert list(record) == [
        *("step", "loss", "ce", "regularizers", "terms", "loops", "loops_mean", "backprop_loops", "lr", "grad_norm"),
        *("state_norm", "tokens", "flops", "tokens_per_s", "mfu", "step_s", "peak_memory_bytes", "batch_sha"),
    ]
    assert record["ce"] == [None, 1.0]
    assert record["regularizers"] == {"p": 0.1}
    assert record["grad_norm"] == 0.5
