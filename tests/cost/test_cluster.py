"""Plans for clusters against arithmetic by hand."""

from __future__ import annotations

import io
from typing import Any

import pytest

from loopkit.cost.cluster import GPU_COUNTS, MEMORY_SHARE, Cluster, Work, layouts, seconds
from loopkit.cost.memory import BUCKET_SIZE, Activations, States
from loopkit.report import console
from loopkit.report.tables.cluster import cluster_report, fastest

GB = 10**9
BILLION = 10**9


def work(**changed: Any) -> Work:
    """A model of 7 billion parameters, of which a loop uses 6."""
    options: dict[str, Any] = {
        "parameters": 7 * BILLION,
        "trained": 7 * BILLION,
        "moments": 14 * BILLION,
        "looped": 6 * BILLION,
        "loops": 4,
        "batch": 1024,
        "length": 4096,
        "flops_per_token": 6 * 25e9,
        "recomputed_per_token": 2 * 24e9,
        "zero": {},
        "activations": {False: Activations(1 * GB, 60 * GB, 0, 0, 0), True: Activations(1 * GB, 8 * GB, 0, 0, 0)},
    }
    return Work(**(options | changed))


MACHINES = Cluster(memory=80 * GB, flops_per_s=1e15, mfu=0.4, link=400e9, network=50e9)


def entry_for(gpus: int, stage: int, recompute: bool, of: Work | None = None) -> dict[str, Any]:
    every = layouts(of or work(), MACHINES)
    key = (gpus, stage, recompute)
    return next(item for item in every if (item["gpus"], item["stage"], item["checkpointing"]) == key)


@pytest.mark.parametrize(("stage", "parts"), [(0, (4, 4, 8)), (1, (4, 4, 8 / 64)), (2, (4, 4 / 64, 8 / 64))])
def test_zero_stage_partitions_parameters_gradients_and_states(stage: int, parts: tuple[float, ...]) -> None:
    memory = entry_for(64, stage, True)["memory_bytes"]
    for name, per_parameter in zip(("parameters", "gradients", "optimizer"), parts, strict=True):
        assert memory[name] == pytest.approx(7 * BILLION * per_parameter)
    assert memory["buffers"] == 4 * BUCKET_SIZE


def test_zero_3_keeps_what_it_has_gathered() -> None:
    memory = entry_for(64, 3, True)["memory_bytes"]
    assert memory["parameters"] == pytest.approx(7 * BILLION * 4 / 64)
    assert memory["buffers"] == 4 * BUCKET_SIZE + 4 * BILLION
    small = work(zero={"stage3_max_live_parameters": 10**8, "reduce_bucket_size": 10**7})
    assert entry_for(64, 3, True, small)["memory_bytes"]["buffers"] == 4 * 10**7 + 4 * 10**8


def test_an_offloaded_optimizer_takes_nothing_here() -> None:
    assert States.of(100, 100, 200, {"stage": 2, "offload_optimizer": {"device": "cpu"}}, 4).optimizer == 0
    assert States.of(100, 100, 200, {"stage": 2, "offload_optimizer": {"device": "none"}}, 4).optimizer == 200
    assert States.of(100, 40, 80, {}, 1) == States(400, 160, 320, 0)  # frozen parameters have neither


def test_micro_batch_is_the_largest_that_fits() -> None:
    layout = entry_for(64, 2, True)
    states = 4 * 7 + 12 * 7 / 64 + 4 * BUCKET_SIZE / GB
    room = MEMORY_SHARE * 80 - states - 1
    assert layout["fits"]
    assert layout["micro_batch"] == max(size for size in (1, 2, 4, 8, 16) if 8 * size <= room) == 4
    assert layout["accumulation"] == 1024 // 64 // 4
    assert layout["memory_bytes"]["total"] == pytest.approx((states + 1 + 4 * 8) * GB, rel=1e-6)


@pytest.mark.parametrize(("stage", "times"), [(0, 2), (1, 2), (2, 4 + 1), (3, 4 * (1 + 2 * (1 + 3 * 6 / 7)))])
def test_seconds_are_operations_and_bytes_over_their_rates(stage: int, times: float) -> None:
    compute, network = seconds(work(), MACHINES, 64, stage, False, 4)
    assert compute == pytest.approx(1024 * 4096 * 6 * 25e9 / (64 * 0.4e15))
    assert network == pytest.approx(times * 4 * 7e9 * 63 / 64 / 50e9)
    again, same = seconds(work(), MACHINES, 64, stage, True, 4)
    assert again == pytest.approx(compute * (6 * 25 + 2 * 24) / (6 * 25))
    assert same == network


def test_gathered_core_is_sent_once_per_pass() -> None:
    _, large = seconds(work(), MACHINES, 64, 3, False, 1)
    _, small = seconds(work(zero={"stage3_max_live_parameters": 6 * BILLION}), MACHINES, 64, 3, False, 1)
    assert small == pytest.approx(3 * 4 * 7e9 * 63 / 64 / 50e9)
    assert large > 2 * small


def test_bandwidth_is_that_of_link_or_network() -> None:
    assert (MACHINES.bandwidth(8), MACHINES.bandwidth(9)) == (400e9, 50e9)
    assert Cluster(1, 1, 1, link=10e9, network=50e9).bandwidth(64) == 10e9
    assert seconds(work(), MACHINES, 1, 0, False, 1)[1] == 0


def test_what_limits_is_named() -> None:
    assert entry_for(1, 0, True)["limit"] == "memory"  # 112 GB of states
    assert not entry_for(1, 0, True)["fits"]
    assert entry_for(16, 2, True)["limit"] == "compute"
    assert entry_for(1024, 2, True, work(batch=1024, length=64))["limit"] == "network"
    assert entry_for(1024, 2, True, work(batch=512))["limit"] == "batch"
    assert "step_s" not in entry_for(1024, 2, True, work(batch=512))


def test_mfu_counts_the_operations_of_the_model_alone() -> None:
    for layout in layouts(work(), MACHINES):
        if "mfu" in layout:
            assert 0 < layout["mfu"] <= 0.4 + 1e-9
            expected = layout["tokens_per_s"] * 6 * 25e9 / (layout["gpus"] * 1e15)
            assert layout["mfu"] == pytest.approx(expected)


def test_fastest_fitting_layout_is_shown_per_count() -> None:
    every = list(layouts(work(), MACHINES))
    assert {layout["gpus"] for layout in every} == set(GPU_COUNTS)
    chosen = fastest([layout for layout in every if layout["gpus"] == 64])
    assert chosen["fits"]
    assert chosen["step_s"] == min(item["step_s"] for item in every if item["gpus"] == 64 and item["fits"])
    shown = io.StringIO()
    console(shown).print(cluster_report({"machines": {"memory": 80 * GB}, "layouts": every}, 100))
    text = shown.getvalue()
    assert "memory on each of 64 GPUs" in text
    assert "1024" in text
