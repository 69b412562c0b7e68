"""Two ranks train and evaluate as one process does, on every ZeRO stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from loopkit.evaluation import results_of
from loopkit.runs import RunFolder, read_metrics
from tests.model import halting
from tests.training.conftest import RECIPE, TEXT
from tests.training.ranks import train_on_ranks
from tests.training.runs import fit, lines, tensors

STILL = (
    "train.steps=10",
    "train.checkpoint.every=null",
    "evaluate.batch=1",
    "evaluate.probes={norms: {}}",
    # a large eps, because Adam turns the rounding error of a gradient near zero into a full step
    "train.optimizer={type: adamw, weight_decay: 0.01, eps: 1e-3}",
)
REGULARIZERS = ("objective.regularizers={norm_penalty: {weight: 0.01}}",)
JACOBIAN = ("objective.regularizers={norm_penalty: {weight: 0.01}, jsrr: {product: vjp, scope: sample, weight: 0.1}}",)
"""Differentiated within the forward pass; its random vectors depend on the sample, not on the rank."""
CALM = ("model.embedding.dropout=0", "model.block.dropout=0", "model.block.attention.dropout=0")
"""Without dropout: after 20 orthogonalised steps rounding has grown to 3e-5 with it."""
MUON = (
    *CALM,
    *REGULARIZERS,
    "train.steps=20",
    "train.optimizer={type: muon, weight_decay: 0.01, scale: shape, fallback: {eps: 1e-3}}",
)
"""Matrices that ZeRO 1 and 2 divide among ranks."""
SCALARS = (*REGULARIZERS, "model.readout={type: alpha, s_ref: ema}", "model.carry=damping", "train.loops_per=sequence")
"""Parameters without dimensions, and a buffer that follows the data."""
PONDER = (
    "objective.regularizers={ponder_cost: {weight: 0.1, prior: 0.6}}",
    "model.gate={type: ponder, bias: -1.0}",
    f"plugins=[{halting.__file__}]",
)
"""The model stops sequences early, at different loops on each rank."""
RUNS = {
    f"zero{stage}-{per}": (
        *STILL,
        *REGULARIZERS,
        f"train.loops_per={per}",
        f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}",
    )
    for stage, per in ((0, "step"), (0, "sequence"), (1, "micro_step"), (2, "sequence"), (3, "micro_step"))
}
RUNS |= {
    f"zero{stage}-scalars": (*STILL, *SCALARS, f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}")
    for stage in (0, 3)
}
RUNS |= {
    f"zero{stage}-jacobian": (*STILL, *JACOBIAN, f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}")
    for stage in (0, 1, 2)
}
RUNS |= {
    f"zero{stage}-muon": (*STILL, *MUON, f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}")
    for stage in (0, 1, 2)
}
EMA = (*REGULARIZERS, "train.ema={decay: 0.8, start: 2}", "train.checkpoint.every=3")
RUNS |= {
    f"zero{stage}-ema": (*STILL, *EMA, f"train.deepspeed={{zero_optimization: {{stage: {stage}}}}}")
    for stage in (0, 1, 2, 3)
}
SHARDED = "train.deepspeed={zero_optimization: {stage: 3, stage3_param_persistence_threshold: 0}}"
RUNS["zero3_sharded-ema"] = (*STILL, *EMA, SHARDED)
RUNS["zero3-ponder"] = (*STILL, *PONDER, "train.deepspeed={zero_optimization: {stage: 3}}")
RUNS["recomputed-step"] = (*RUNS["zero0-step"], *RUNS["zero3-micro_step"][-1:], "train.checkpointing=true")
RUNS["offloaded-step"] = (
    *RUNS["zero0-step"][:-1],
    "train.deepspeed={zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}}",
)

REPEATED = (
    "zero0-sequence",
    "zero0-scalars",
    "zero0-jacobian",
    "zero1-jacobian",
    "zero0-muon",
    "zero1-muon",
    "zero0-ema",
    "zero1-ema",
    "zero3-ema",
    "offloaded-step",
)
"""Runs whose stage, objective and optimizer occur in another run; CI alone trains them."""


def names(suffix: str = "") -> list[Any]:
    """The names of runs as parameters of a test."""
    chosen = [name for name in RUNS if name.endswith(suffix)]
    return [pytest.param(name, marks=pytest.mark.ci) if name in REPEATED else name for name in chosen]


def num_steps(name: str) -> int:
    """The optimizer steps of a run."""
    return 20 if name.endswith("muon") else 10


@pytest.fixture(scope="module")
def selected(request: pytest.FixtureRequest) -> list[str]:
    """The runs that the selected tests of this module compare."""
    items = [item for item in request.session.items if item.path == request.path]
    compared = {item.callspec.params.get("name") for item in items if hasattr(item, "callspec")}
    return [name for name in RUNS if name in compared]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, selected: list[str]) -> Path:
    """Both sets of runs: ``NAME`` by two ranks, ``alone/PER`` by this process."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "texts").mkdir()
    (folder / "texts" / "train.txt").write_text(TEXT)
    (folder / "texts" / "validation.txt").write_text(TEXT[:100])
    (folder / "tiny.yaml").write_text(RECIPE)
    train_on_ranks(folder / "tiny.yaml", {name: RUNS[name] for name in selected}, folder)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path, selected: list[str]) -> dict[str, Path]:
    """The same steps by one process, whose micro-batch is that of both ranks together."""
    from loopkit.recipe import load_recipe
    from tests.overriding import latest

    folders = {}
    parts = {"scalars": SCALARS, "jacobian": JACOBIAN, "muon": MUON, "ema": EMA, "ponder": PONDER}
    for per in dict.fromkeys(name.partition("-")[2] for name in selected):
        joined = parts.get(per, (*REGULARIZERS, f"train.loops_per={per}"))
        options = (*STILL, *joined, "train.micro_batch=4")
        folders[per] = folder / "alone" / per
        folders[per].parent.mkdir(exist_ok=True)
        fit(load_recipe(folder / "tiny.yaml", (), latest(*options)), folders[per])
    return folders


@pytest.mark.parametrize("name", names())
def test_losses_equal_those_of_one_process(folder: Path, alone: dict[str, Path], name: str) -> None:
    actual, expected = lines(folder / name), lines(alone[name.partition("-")[2]])
    assert len(actual) == len(expected) == num_steps(name)
    assert len({line["loops"] for line in actual}) > 1
    for record, expected_record in zip(actual, expected, strict=True):
        assert abs(record["loss"] - expected_record["loss"]) < 1e-5
        assert record["regularizers"] == pytest.approx(expected_record["regularizers"], rel=1e-5)
        same = ("step", "loops", "loops_mean", "backprop_loops", "tokens", "batch_sha")
        assert {key: record[key] for key in same} == {key: expected_record[key] for key in same}
        assert record["grad_norm"] == pytest.approx(expected_record["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("name", names())
def test_loops_are_equal_on_all_ranks(folder: Path, name: str) -> None:
    first, second = (json.loads((folder / f"{name}.loops.{rank}.json").read_text()) for rank in (0, 1))
    assert len(first) == num_steps(name) * 2  # two micro-steps of two sequences on each of two ranks
    assert first == second


@pytest.mark.parametrize("name", names())
def test_shared_evaluation_equals_that_of_one_process(folder: Path, alone: dict[str, Path], name: str) -> None:
    runs = folder / name, alone[name.partition("-")[2]]
    (actual,), (expected,) = (results_of(RunFolder(run), num_steps(name)) for run in runs)
    record, expected_record = json.loads(actual.read_text()), json.loads(expected.read_text())
    assert expected_record["batches"] % 2 == 1  # one rank has more batches
    for key in ("tokens_scored", "batches", "core_calls", "words", "bytes"):
        assert record[key] == expected_record[key]
    for depth, row in zip(record["depths"], expected_record["depths"], strict=True):
        assert depth == {key: pytest.approx(value, rel=1e-5) for key, value in row.items()}


@pytest.mark.parametrize("name", names())
def test_only_the_first_rank_writes(folder: Path, name: str) -> None:
    steps = [line["step"] for line in read_metrics(RunFolder(folder / name).metrics)]
    assert steps == list(range(1, num_steps(name) + 1))


@pytest.mark.parametrize("name", names("scalars"))
def test_running_buffers_equal_those_of_one_process(folder: Path, alone: dict[str, Path], name: str) -> None:
    actual, expected = (tensors(run, num_steps(name)) for run in (folder / name, alone["scalars"]))
    for key in ("log_s_ref", "count"):
        (where,) = [path for path in expected if path.endswith(key)]
        assert expected[where] != 0
        assert actual[where].item() == pytest.approx(expected[where].item(), rel=1e-4)


@pytest.mark.parametrize("name", names("ema"))
def test_average_and_its_evaluation_equal_those_of_one_process(folder: Path, alone: dict[str, Path], name: str) -> None:
    actual, expected = (tensors(run, num_steps(name)) for run in (folder / name, alone["ema"]))
    averages = {key for key in expected if key.startswith("ema:")}
    assert averages == {key for key in actual if key.startswith("ema:")}
    assert any(not expected[key].equal(expected[key.replace("ema:", "weights:")]) for key in averages)
    for key in averages:
        assert torch.allclose(actual[key], expected[key], rtol=1e-4, atol=1e-6), key
    (one,), (two,) = (results_of(RunFolder(run), num_steps(name), "ema") for run in (folder / name, alone["ema"]))
    losses = [[row["loss"] for row in json.loads(path.read_text())["depths"]] for path in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
