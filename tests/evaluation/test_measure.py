"""Evaluation of a small model from a recipe."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from loopkit.components.tokenizer.characters import Characters
from loopkit.data import prepare
from loopkit.evaluation import EvaluationSettings, ModelSource, Result, TrainedDepths, evaluate, format_depths
from loopkit.evaluation.batches import Batches
from loopkit.evaluation.result import build_row
from loopkit.evaluation.trained_run import TrainedRun, trained_depths
from loopkit.loop import Loops, Step
from loopkit.recipe import component, load_recipe
from loopkit.registry.catalog import catalog
from loopkit.report.tables.depth import format_trained
from loopkit.runs import Checkpoint, RunFolder
from tests.data.toys import Squares, ToyData, ToySpec

MakeCase = Callable[..., Any]
EXACT = {"exact_match": component("task", "exact_match")}
PERPLEXITY = {"perplexity": component("task", "perplexity")}


def run(case: Any, depths: list[int] | None = None, **options: Any) -> Result:
    config = replace(case.recipe.evaluate, **options.pop("config", {}))
    chosen = {name: options.pop(name) for name in ("dtype", "read_as", "timed_batches") if name in options}
    settings = EvaluationSettings(config=config, depths=depths, **chosen)
    return evaluate(case.model, case.prepared, settings, trained=TrainedDepths(1, 4, 2.5), **options)


def losses(result: Result) -> dict[int, float]:
    return {row["depth"]: row["loss"] for row in result.depths}


READOUTS = ["raw", "norm", "final_only", "alpha"]


@pytest.mark.parametrize("readout", READOUTS)
def test_sweep_equals_separate_evaluations(make_case: MakeCase, readout: str) -> None:
    case = make_case(f"model.readout={readout}")
    swept = losses(run(case, [1, 2, 3, 8]))
    for depth, loss in swept.items():
        assert losses(run(case, [depth]))[depth] == pytest.approx(loss, rel=1e-5)
    if readout == "final_only":
        assert losses(run(case, [1, 2, 3, 8], read_as="trained")) != pytest.approx(swept, rel=1e-5)


def test_units_define_words(make_case: MakeCase) -> None:
    assert run(make_case(), [1]).units["words"] == "runs of characters between blanks"
    answers = make_case("data.source={type: addition, train: 50, validation: 4, test: 4}", "data.tokenizer=characters")
    result = run(answers, [1])
    assert "words" not in result.units
    assert "word_ppl" not in result.depths[0]


def test_in_place_targets_are_scored_by_group(make_case: MakeCase, tmp_path: Path) -> None:
    """A model that predicts the target of every empty cell solves every board, at every depth and in every group."""
    data = ToyData(ToySpec(Squares()), ToySpec(Characters()))
    prepared = prepare(data, cache=tmp_path, splits=["train"])  # type: ignore[arg-type]
    model = make_case("model.width=16").model
    config = replace(make_case().recipe.evaluate, split="train", tasks=EXACT, probes={}, protocol="non_overlapping")
    three = prepared.tokenizer.encode(["3"])[0].item()
    with torch.no_grad():
        model.head.bias = torch.nn.Parameter(torch.zeros(model.vocabulary))
        model.head.bias[three] = 1e4
    result = evaluate(model, prepared, EvaluationSettings(config=config, depths=[1, 2], length=8))
    for row in result.depths:
        assert row["exact_match"] == row["token_accuracy"] == 1.0
        assert row["groups"] == {"2 empty": {"exact_match": 1.0, "token_accuracy": 1.0}}
    assert result.conditions.tokens_scored == 4
    assert "2 examples (2 empty: 2), 4 of them targets and scored" in str(result.conditions.slice)
    json.dumps(result.to_json(), allow_nan=False)


def test_eight_depths_take_eight_core_calls(make_case: MakeCase) -> None:
    case = make_case()
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    handle = case.model.core.register_forward_hook(count)
    result = run(case, list(range(1, 9)))
    handle.remove()
    assert result.batches > 1
    assert calls == result.core_calls == 8 * result.batches
    assert result.passes == "one"


def test_result_is_independent_of_batch_and_random_state(make_case: MakeCase) -> None:
    case = make_case("model.start=normal", "model.injection=add")
    one, eight = run(case, [1, 4], config={"batch": 1}), run(case, [1, 4], config={"batch": 8})
    assert losses(one) == pytest.approx(losses(eight), rel=1e-5)
    torch.manual_seed(3)
    torch.rand(7)
    assert run(case, [1, 4], config={"batch": 8}).to_json() == eight.to_json()
    norms = [row["state_norm"]["mean"] for row in one.depths]
    assert norms == pytest.approx([row["state_norm"]["mean"] for row in eight.depths], rel=1e-5)


def test_read_as_trained(make_case: MakeCase) -> None:
    case = make_case("model.readout=final_only")
    as_trained = losses(run(case, [1, 4, 6], read_as="trained"))
    as_depth = losses(run(case, [1, 4, 6]))
    raw = losses(run(make_case("model.readout=raw"), [1]))
    assert as_trained[1] == pytest.approx(raw[1], rel=1e-5)
    assert as_trained[4] == pytest.approx(as_depth[4], rel=1e-6)
    assert as_trained[6] == pytest.approx(as_depth[6], rel=1e-6)
    assert as_trained[1] != pytest.approx(as_depth[1], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_model_perplexity_equals_vocabulary_size(make_case: MakeCase, dtype: torch.dtype) -> None:
    case = make_case()
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.zero_()
    case.model.to(dtype)
    result = run(case, [1, 3]).to_json()
    case.model.to(torch.float32)
    size, exact = case.prepared.tokenizer.size, 1e-12 if dtype == torch.float64 else 1e-6
    nats = result["tokens_scored"] * math.log(size)
    for row in result["depths"]:
        assert row["token_ppl"] == pytest.approx(size, rel=exact)
        assert row["word_ppl"] == pytest.approx(math.exp(nats / result["words"]), rel=100 * exact)
        assert row["bits_per_byte"] == pytest.approx(nats / math.log(2) / result["bytes"], rel=exact)


def test_every_token_is_scored_once(make_case: MakeCase) -> None:
    case = make_case()
    result = run(case, [2], config={"batch": 3})
    tokens = case.prepared.splits["validation"].report.tokens
    assert tokens % case.recipe.data.length > 1, "the last window must be incomplete"
    assert result.conditions.tokens_scored == tokens - 1
    # by hand: one window at a time, nothing padded
    total, num_scored = 0.0, 0
    text = torch.tensor(case.prepared.splits["validation"].store.read(0, tokens).astype("int64"))
    case.model.eval()
    for first in range(0, tokens - 1, case.recipe.data.length):
        part = text[first : first + case.recipe.data.length + 1]
        from loopkit.loop import Batch

        with torch.no_grad():
            logits = case.model.run(Batch.of(part[None, :-1]), Loops.fixed(2)).logits(2)[0]
        total += torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum").item()
        num_scored += len(part) - 1
    assert num_scored == tokens - 1
    assert losses(result)[2] == pytest.approx(total / num_scored, rel=1e-5)


def test_slice_is_described(make_case: MakeCase) -> None:
    result = run(make_case(), [1], config={"max_tokens": 400})
    assert 200 < result.conditions.tokens_scored < 400
    assert "the first" in result.conditions.slice


def test_length_dependent_loop_needs_a_pass_per_depth(make_case: MakeCase) -> None:
    case = make_case()
    one_pass = losses(run(case, [1, 2, 4]))
    case.model.depth_free = False
    try:
        result = run(case, [1, 2, 4])
    finally:
        case.model.depth_free = True
    assert result.passes == "one per depth"
    assert result.core_calls == 7 * result.batches
    assert "each depth is a separate pass" in result.notes[0]
    assert losses(result) == pytest.approx(one_pass, rel=1e-6)


class _LengthDependentCarry(nn.Module):
    """A carry whose value depends on how many loops the run has."""

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s * (1 + 2 / step.loops.total)


def test_depths_read_as_trained_share_the_trained_pass(make_case: MakeCase) -> None:
    """If the loop depends on its length, trained depths are read from one pass of the trained length; a deeper one is a
    separate pass. The number of core calls and the result agree with that."""
    case = make_case("model.readout=raw")
    case.model.carry, case.model.depth_free = _LengthDependentCarry(), False
    result = run(case, [1, 2, 3, 6], read_as="trained")
    assert result.passes == "2"
    assert result.core_calls == (3 + 6) * result.batches
    assert "trained depths are read from one pass" in result.notes[0]
    shared, separate = losses(result), losses(run(case, [1, 2, 3, 6]))
    scoring = case.prepared.splits["validation"].scoring(case.recipe.data.length)
    for depth in (1, 2, 3, 6):
        total = 0.0
        with torch.no_grad():
            for batch in Batches(scoring, 4, torch.device("cpu")):
                t = case.model.eval().run(batch, Loops.fixed(max(depth, 4)))
                total += t.nll([depth], at=max(depth, 4)).double().sum().item()
        assert shared[depth] == pytest.approx(total / result.conditions.tokens_scored, rel=1e-6)
        assert (shared[depth] == pytest.approx(separate[depth], rel=1e-9)) == (depth in (1, 6)), depth


@pytest.mark.parametrize(
    ("supervision", "schedule", "depends_on", "read_as", "expected"),
    [
        ("per_loop", "{type: fixed, loops: 4}", "nothing", "depth", [1, 2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", "nothing", "depth", [2, 3, 4]),
        ("{type: last_n, n: 2}", "{type: fixed, loops: 4}", "nothing", "trained", [3, 4]),
        ("per_loop", "{type: fixed, loops: 4}", "total", "depth", [4]),
        ("per_loop", "{type: fixed, loops: 4}", "total", "trained", [1, 2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", "total", "depth", [2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", "total", "trained", [4]),
        ("{type: last_n, n: 2}", "{type: uniform, min: 2, max: 4}", "total", "trained", [3, 4]),
        ("per_loop", "{type: fixed, loops: 4}", "at", "depth", [4]),
        ("per_loop", "{type: fixed, loops: 4}", "at", "trained", [1, 2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", "at", "depth", [2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", "at", "trained", [4]),
        ("{type: last_n, n: 2}", "{type: uniform, min: 2, max: 4}", "at", "trained", [1, 2, 3, 4]),
    ],
)
def test_only_depths_read_as_trained_are_marked(
    supervision: str, schedule: str, depends_on: str, read_as: Any, expected: list[int], root: Path
) -> None:
    """The loop depends on the length of its pass, its readout on whether it is the last, or neither does."""
    overrides = [f"objective.supervision={supervision}", f"train.schedule={schedule}"]
    recipe = load_recipe(root / "recipes" / "wikitext_44m_raw.yaml", ["smoke"], overrides)
    model: Any = SimpleNamespace(depth_free=depends_on != "total", reads_last_differently=depends_on == "at")
    trained = trained_depths(recipe, model, read_as)
    assert [depth for depth in range(1, 9) if trained.covers(depth)] == expected
    assert trained.max == 4
    assert format_trained(trained.to_json()) == format_depths(expected)
    assert [build_row(depth, trained, {})["trained"] for depth in expected] == [True] * len(expected)


@pytest.mark.parametrize(
    ("written", "max_depth", "expected"),
    [(None, None, [1, 2, 3, 4, 8]), (None, 6, [1, 2, 3, 4]), ("2-3", None, [2, 3])],
)
def test_default_depths_exceed_training(
    written: str | None, max_depth: int | None, expected: list[int], make_case: MakeCase
) -> None:
    """The default depths are the recipe's, or the trained range and twice its end if the model can run it."""
    case = make_case("train.schedule={type: fixed, loops: 4}", f"evaluate.depths={written or 'null'}")
    case.model.max_depth = max_depth
    checkpoint = Checkpoint(Path("checkpoints/step-00000001"), 1)
    opened = TrainedRun(RunFolder(Path("run")), checkpoint, case.recipe, "", case.model, case.prepared.tokenizer)
    assert opened.depths == expected


def test_depths_beyond_the_model_are_rejected(make_case: MakeCase) -> None:
    case = make_case("model.readout.type=alpha", "model.readout.per_loop=true")
    assert case.model.max_depth == 4
    with pytest.raises(ValueError, match=r"depth 5 exceeds 4: .*depths up to 4"):
        run(case, [1, 5])


def test_invalid_settings_are_rejected(make_case: MakeCase) -> None:
    case = make_case()
    with pytest.raises(ValueError, match="split 'test' was not prepared; prepared splits: validation"):
        run(case, [1], config={"split": "test"})
    with pytest.raises(ValueError, match="both empty"):
        run(case, [1], config={"tasks": {}, "probes": {}})
    with pytest.raises(ValueError, match="both define the figure 'loss'"):
        run(case, [1], config={"tasks": PERPLEXITY | {"again": PERPLEXITY["perplexity"]}})
    with pytest.raises(ValueError, match="depths start at 1"):
        run(case, [0])


def test_depths_come_from_recipe_or_training(make_case: MakeCase) -> None:
    case = make_case()
    assert [row["depth"] for row in run(case, config={"depths": "1,3"}).depths] == [1, 3]
    assert [row["depth"] for row in run(case, config={"depths": 2}).depths] == [2]
    assert [row["depth"] for row in run(case, config={"depths": None}).depths] == [1, 2, 3, 4]


def test_evaluation_does_not_change_the_model(make_case: MakeCase) -> None:
    case = make_case()
    case.model.train()
    before = torch.get_rng_state()
    weights = {name: value.clone() for name, value in case.model.state_dict().items()}
    run(case, [1, 2])
    assert case.model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(weights[name], value) for name, value in case.model.state_dict().items())
    assert all(parameter.grad is None for parameter in case.model.parameters())


def test_bf16_is_close_and_recorded(make_case: MakeCase) -> None:
    case = make_case()
    result = run(case, [1, 4], dtype="bf16_autocast")
    assert result.conditions.dtype == "bf16_autocast"
    full = losses(run(case, [1, 4]))
    assert losses(result) == pytest.approx(full, rel=0.05)
    assert losses(result) != full


def test_throughput_is_measured_on_request(make_case: MakeCase) -> None:
    case = make_case()
    assert "tokens_per_s" not in run(case, [1]).depths[0]
    result = run(case, [1, 4], timed_batches=2)
    assert all(row["tokens_per_s"] > 0 for row in result.depths)
    assert "2 batches" in result.units["tokens_per_s"]
    assert result.core_calls == 4 * result.batches, "the count must not include timing"


def test_probes_share_an_evaluation(make_case: MakeCase) -> None:
    case = make_case()
    names = ("norms", "radial", "update", "scale_sweep", "clamp")
    record = run(case, [1, 2, 4], config={"probes": {name: component("probe", name) for name in names}}).to_json()
    for row in record["depths"]:
        assert 0 < row["radial_fraction"] <= 1
        assert row["scale_range"] > 0
        assert 0 <= row["angular_step"] <= 2
        assert {"mean", "median", "p99", "max", "std"} == set(row["state_norm"])
    assert record["depths"][0]["clamp_loss_change"] == pytest.approx(0, abs=1e-6)
    assert record["tables"]["lemma_2"]["loops"] == [11, 30]
    assert set(record["units"]) >= {"radial_fraction", "state_norm", "scale_range", "clamp_loss_change", "angular_step"}
    json.dumps(record, allow_nan=False)


def test_normed_readout_hides_the_scale(make_case: MakeCase) -> None:
    probes = {"probes": {name: component("probe", name) for name in ("radial", "scale_sweep")}}
    # the norm's eps makes a small state's scale visible, so the state is made large
    rows = {}
    for readout in ("norm", "raw", "final_only"):
        case = make_case(f"model.readout={readout}", "model.embedding.scale=100.0")
        rows[readout] = run(case, [1, 4], config=probes).depths
    assert max(row["radial_fraction"] for row in rows["norm"]) < 1e-6
    assert max(row["scale_range"] for row in rows["norm"]) < 1e-3
    assert min(row["radial_fraction"] for row in rows["raw"]) > 1e-3
    assert rows["final_only"][0]["radial_fraction"] > 1e-3
    assert rows["final_only"][1]["radial_fraction"] < 1e-6


def test_overflowing_figure_is_listed_as_not_finite(make_case: MakeCase) -> None:
    case = make_case("model.embedding.scale=3e4")
    row = run(case, [1]).to_json()["depths"][0]
    assert row["loss"] > 710
    assert "token_ppl" not in row
    assert "token_ppl" in row["not_finite"]


def test_origin_is_recorded(make_case: MakeCase) -> None:
    record = run(make_case(), [1], origin=ModelSource(run="a", recipe="r", recipe_hash="0", step=7)).to_json()
    assert (record["run"], record["recipe"], record["recipe_hash"], record["step"]) == ("a", "r", "0", 7)
    assert "checkpoint" not in record
    assert record["tokenizer"]["type"] == "bytes"


def test_progress_is_reported(make_case: MakeCase) -> None:
    calls: list[tuple[int, int]] = []
    result = run(make_case(), [1], progress=lambda done, batches: calls.append((done, batches)))
    assert calls == [(n, result.batches) for n in range(1, result.batches + 1)]


def test_overlapping_windows_have_no_word_figures(make_case: MakeCase) -> None:
    case = make_case()
    record = run(case, [1], config={"protocol": "paper_a"}).to_json()
    assert record["stride"] == record["window"] // 2
    assert record["tokens_scored"] > 1.5 * case.prepared.splits["validation"].report.tokens
    assert "word_ppl" not in record["depths"][0]
    assert "bits_per_byte" not in record["depths"][0]
    assert "words" not in record


def test_stride_does_not_change_the_scored_tokens(make_case: MakeCase) -> None:
    case = make_case()
    half = run(case, [1], config={"stride": 16}).to_json()
    full = run(case, [1]).to_json()
    assert half["stride"] == 16
    assert full["stride"] == full["window"] == 32
    assert half["tokens_scored"] == full["tokens_scored"]
    assert half["batches"] > full["batches"]


def test_figures_match_the_registrations(make_case) -> None:
    """``validate`` refuses two tasks or probes under one figure's name by what they declare."""
    declared = {
        (offer.kind, offer.name): offer.schema.traits["figures"]
        for kind in ("probe", "task")
        for offer in catalog(False).of(kind)
        if offer.schema and "figures" in offer.schema.traits
    }
    probes = {name for kind, name in declared if kind == "probe"}
    assert probes == set(catalog(False).names("probe"))
    written = ", ".join(f"{name}: {{}}" for name in sorted(probes))
    case = make_case(f"evaluate.probes={{{written}}}", "evaluate.tasks.perplexity={}", "evaluate.max_tokens=300")
    rows = run(case, [1, 2]).to_json()["depths"]
    figures = {name for row in rows for name in row} - {"depth", "trained"}
    expected = set().union(
        *(names for (kind, name), names in declared.items() if kind == "probe" or name == "perplexity")
    )
    assert figures == expected
