"""The whole evaluation on a small model that a recipe describes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from loopkit.components.tokenizer.characters import Characters
from loopkit.data import prepare
from loopkit.evaluation import ModelSource, Result, TrainedDepths, evaluate, format_depths
from loopkit.evaluation.batches import Batches
from loopkit.evaluation.result import row_of
from loopkit.evaluation.trained_run import TrainedRun, trained_depths
from loopkit.loop import Loops, Step
from loopkit.recipe import component, load_recipe
from loopkit.registry.catalog import catalog
from loopkit.report.tables.depth import spell_trained
from loopkit.runs import Checkpoint, RunFolder
from tests.data.toys import Squares, ToyData, ToySpec

MakeCase = Callable[..., Any]
EXACT = {"exact_match": component("task", "exact_match")}
PERPLEXITY = {"perplexity": component("task", "perplexity")}


def run(case: Any, depths: list[int] | None = None, **options: Any) -> Result:
    settings = replace(case.recipe.evaluate, **options.pop("settings", {}))
    return evaluate(case.model, case.prepared, settings, depths, trained=TrainedDepths(1, 4, 2.5), **options)


def losses(result: Result) -> dict[int, float]:
    return {row["depth"]: row["loss"] for row in result.depths}


READOUTS = ["raw", "norm", "final_only", "alpha"]


@pytest.mark.parametrize("readout", READOUTS)
def test_each_depth_equals_an_evaluation_at_that_depth_alone(make_case: MakeCase, readout: str) -> None:
    case = make_case(f"model.readout={readout}")
    together = losses(run(case, [1, 2, 3, 8]))
    for depth, loss in together.items():
        assert losses(run(case, [depth]))[depth] == pytest.approx(loss, rel=1e-5)
    if readout == "final_only":
        assert losses(run(case, [1, 2, 3, 8], read_as="trained")) != pytest.approx(together, rel=1e-5)


def test_the_units_state_what_words_are(make_case: MakeCase) -> None:
    assert run(make_case(), [1]).units["words"] == "runs of characters between blanks"
    answers = make_case("data.source={type: addition, train: 50, validation: 4, test: 4}", "data.tokenizer=characters")
    found = run(answers, [1])
    assert "words" not in found.units
    assert "word_ppl" not in found.depths[0]


def test_targets_in_place_are_scored_by_group(make_case: MakeCase, tmp_path: Path) -> None:
    """A model that says the target wherever a cell is empty solves every board, at every depth and in every group."""
    data = ToyData(ToySpec(Squares()), ToySpec(Characters()))
    prepared = prepare(data, cache=tmp_path, splits=["train"])  # type: ignore[arg-type]
    model = make_case("model.width=16").model
    settings = replace(make_case().recipe.evaluate, split="train", tasks=EXACT, probes={}, protocol="once")
    three = prepared.tokenizer.encode(["3"])[0].item()
    with torch.no_grad():
        model.head.bias = torch.nn.Parameter(torch.zeros(model.vocabulary))
        model.head.bias[three] = 1e4
    found = evaluate(model, prepared, settings, [1, 2], length=8)
    for row in found.depths:
        assert row["exact_match"] == row["token_accuracy"] == 1.0
        assert row["groups"] == {"2 empty": {"exact_match": 1.0, "token_accuracy": 1.0}}
    assert found.conditions.tokens_scored == 4
    assert "2 examples (2 empty: 2), 4 of them targets and scored" in str(found.conditions.slice)
    json.dumps(found.to_json(), allow_nan=False)


def test_eight_depths_take_eight_core_calls_a_batch(make_case: MakeCase) -> None:
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


def test_batch_sizes_agree_and_twice_gives_the_same_bits(make_case: MakeCase) -> None:
    case = make_case("model.start=normal", "model.injection=add")
    one, eight = run(case, [1, 4], batch=1), run(case, [1, 4], batch=8)
    assert losses(one) == pytest.approx(losses(eight), rel=1e-5)
    torch.manual_seed(3)
    torch.rand(7)
    assert run(case, [1, 4], batch=8).to_json() == eight.to_json()
    norms = [row["state_norm"]["mean"] for row in one.depths]
    assert norms == pytest.approx([row["state_norm"]["mean"] for row in eight.depths], rel=1e-5)


def test_reads_as_trained_where_asked(make_case: MakeCase) -> None:
    case = make_case("model.readout=final_only")
    as_trained = losses(run(case, [1, 4, 6], read_as="trained"))
    as_depth = losses(run(case, [1, 4, 6]))
    raw = losses(run(make_case("model.readout=raw"), [1]))
    assert as_trained[1] == pytest.approx(raw[1], rel=1e-5)
    assert as_trained[4] == pytest.approx(as_depth[4], rel=1e-6)
    assert as_trained[6] == pytest.approx(as_depth[6], rel=1e-6)
    assert as_trained[1] != pytest.approx(as_depth[1], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(make_case: MakeCase, dtype: torch.dtype) -> None:
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
    result = run(case, [2], batch=3)
    tokens = case.prepared.splits["validation"].report.tokens
    assert tokens % case.recipe.data.length > 1, "the last window is to be a short one"
    assert result.conditions.tokens_scored == tokens - 1
    # by hand: one window at a time, nothing padded
    total, seen = 0.0, 0
    text = torch.tensor(case.prepared.splits["validation"].store.read(0, tokens).astype("int64"))
    case.model.eval()
    for first in range(0, tokens - 1, case.recipe.data.length):
        part = text[first : first + case.recipe.data.length + 1]
        from loopkit.loop import Batch

        with torch.no_grad():
            logits = case.model.run(Batch.of(part[None, :-1]), Loops.fixed(2)).logits(2)[0]
        total += torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum").item()
        seen += len(part) - 1
    assert seen == tokens - 1
    assert losses(result)[2] == pytest.approx(total / seen, rel=1e-5)


def test_a_slice_is_stated(make_case: MakeCase) -> None:
    result = run(make_case(), [1], settings={"max_tokens": 400})
    assert 200 < result.conditions.tokens_scored < 400
    assert "the first" in result.conditions.slice


def test_a_loop_that_knows_its_length_is_run_once_per_depth(make_case: MakeCase) -> None:
    case = make_case()
    one = losses(run(case, [1, 2, 4]))
    case.model.depth_free = False
    try:
        result = run(case, [1, 2, 4])
    finally:
        case.model.depth_free = True
    assert result.passes == "one per depth"
    assert result.core_calls == 7 * result.batches
    assert "each depth is a pass of its own" in result.notes[0]
    assert losses(result) == pytest.approx(one, rel=1e-6)


class _Hurried(nn.Module):
    """A carry whose value depends on how many loops the run has."""

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s * (1 + 2 / step.loops.total)


def test_depths_read_as_trained_share_the_trained_pass(make_case: MakeCase) -> None:
    """Loop k of a run of as many loops as training ran, where that is another thing than a run of k; a depth beyond
    training is a run of its own. Exactly so many core calls are made, and the result says so."""
    case = make_case("model.readout=raw")
    case.model.carry, case.model.depth_free = _Hurried(), False
    result = run(case, [1, 2, 3, 6], read_as="trained")
    assert result.passes == "2"
    assert result.core_calls == (3 + 6) * result.batches
    assert "depths up to those of training are read from one pass" in result.notes[0]
    got, alone = losses(result), losses(run(case, [1, 2, 3, 6]))
    scoring = case.prepared.splits["validation"].scoring(case.recipe.data.length)
    for depth in (1, 2, 3, 6):
        total = 0.0
        with torch.no_grad():
            for batch in Batches(scoring, 4, torch.device("cpu")):
                t = case.model.eval().run(batch, Loops.fixed(max(depth, 4)))
                total += t.nll([depth], at=max(depth, 4)).double().sum().item()
        assert got[depth] == pytest.approx(total / result.conditions.tokens_scored, rel=1e-6)
        assert (got[depth] == pytest.approx(alone[depth], rel=1e-9)) == (depth in (1, 6)), depth


@pytest.mark.parametrize(
    ("supervision", "schedule", "depth_free", "read_as", "expected"),
    [
        ("per_loop", "{type: fixed, loops: 4}", True, "depth", [1, 2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", True, "depth", [2, 3, 4]),
        ("{type: last_n, n: 2}", "{type: fixed, loops: 4}", True, "trained", [3, 4]),
        ("per_loop", "{type: fixed, loops: 4}", False, "depth", [4]),
        ("per_loop", "{type: fixed, loops: 4}", False, "trained", [1, 2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", False, "depth", [2, 3, 4]),
        ("terminal", "{type: uniform, min: 2, max: 4}", False, "trained", [4]),
        ("{type: last_n, n: 2}", "{type: uniform, min: 2, max: 4}", False, "trained", [3, 4]),
    ],
)
def test_only_depths_read_as_in_training_are_marked(
    supervision: str, schedule: str, depth_free: bool, read_as: Any, expected: list[int], root: Path
) -> None:
    """Where the loop depends on its length, loop k of a run of k was trained by runs of k alone."""
    overrides = [f"objective.supervision={supervision}", f"train.schedule={schedule}"]
    recipe = load_recipe(root / "recipes" / "wikitext_44m_raw.yaml", ["smoke"], overrides)
    trained = trained_depths(recipe, depth_free=depth_free, read_as=read_as)
    assert [depth for depth in range(1, 9) if trained.covers(depth)] == expected
    assert trained.max == 4
    assert spell_trained(trained.to_json()) == format_depths(expected)
    assert [row_of(depth, trained, {})["trained"] for depth in expected] == [True] * len(expected)


@pytest.mark.parametrize(
    ("written", "max_depth", "expected"),
    [(None, None, [1, 2, 3, 4, 8]), (None, 6, [1, 2, 3, 4]), ("2-3", None, [2, 3])],
)
def test_an_evaluation_looks_beyond_training(
    written: str | None, max_depth: int | None, expected: list[int], make_case: MakeCase
) -> None:
    """Unless told otherwise: the trained range and twice its end, as far as the model can run, or the recipe's."""
    case = make_case("train.schedule={type: fixed, loops: 4}", f"evaluate.depths={written or 'null'}")
    case.model.max_depth = max_depth
    checkpoint = Checkpoint(Path("checkpoints/step-00000001"), 1)
    opened = TrainedRun(RunFolder(Path("run")), checkpoint, case.recipe, "", case.model, case.prepared.tokenizer)
    assert opened.depths == expected


def test_depths_beyond_the_model_are_refused_with_the_reason(make_case: MakeCase) -> None:
    case = make_case("model.readout.type=alpha", "model.readout.per_loop=true")
    assert case.model.max_depth == 4
    with pytest.raises(ValueError, match=r"depth 5 is beyond what this model can run.*depths up to 4"):
        run(case, [1, 5])


def test_bad_requests_are_refused(make_case: MakeCase) -> None:
    case = make_case()
    with pytest.raises(ValueError, match="there is no split 'test' here; this data was prepared with validation"):
        run(case, [1], split="test")
    with pytest.raises(ValueError, match="both empty"):
        run(case, [1], settings={"tasks": {}, "probes": {}})
    with pytest.raises(ValueError, match="both give a figure called 'loss'"):
        run(case, [1], settings={"tasks": PERPLEXITY | {"again": PERPLEXITY["perplexity"]}})
    with pytest.raises(ValueError, match="depths start at 1"):
        run(case, [0])


def test_the_depths_are_those_of_the_recipe_or_the_trained_ones(make_case: MakeCase) -> None:
    case = make_case()
    assert [row["depth"] for row in run(case, settings={"depths": "1,3"}).depths] == [1, 3]
    assert [row["depth"] for row in run(case, settings={"depths": 2}).depths] == [2]
    assert [row["depth"] for row in run(case, settings={"depths": None}).depths] == [1, 2, 3, 4]


def test_the_model_is_given_back_as_it_was(make_case: MakeCase) -> None:
    case = make_case()
    case.model.train()
    before = torch.get_rng_state()
    weights = {name: value.clone() for name, value in case.model.state_dict().items()}
    run(case, [1, 2])
    assert case.model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(weights[name], value) for name, value in case.model.state_dict().items())
    assert all(parameter.grad is None for parameter in case.model.parameters())


def test_bf16_is_near_and_said(make_case: MakeCase) -> None:
    case = make_case()
    result = run(case, [1, 4], dtype="bf16_autocast")
    assert result.conditions.dtype == "bf16_autocast"
    full = losses(run(case, [1, 4]))
    assert losses(result) == pytest.approx(full, rel=0.05)
    assert losses(result) != full


def test_speed_is_measured_when_asked_and_else_absent(make_case: MakeCase) -> None:
    case = make_case()
    assert "tokens_per_s" not in run(case, [1]).depths[0]
    result = run(case, [1, 4], timed_batches=2)
    assert all(row["tokens_per_s"] > 0 for row in result.depths)
    assert "2 batches" in result.units["tokens_per_s"]
    assert result.core_calls == 4 * result.batches, "timing is not part of the sweep"


def test_every_probe_at_once(make_case: MakeCase) -> None:
    case = make_case()
    names = ("norms", "radial", "update", "scale_sweep", "clamp")
    found = run(case, [1, 2, 4], settings={"probes": {name: component("probe", name) for name in names}}).to_json()
    for row in found["depths"]:
        assert 0 < row["radial_fraction"] <= 1
        assert row["scale_range"] > 0
        assert 0 <= row["angular_step"] <= 2
        assert {"mean", "median", "p99", "max", "std"} == set(row["state_norm"])
    assert found["depths"][0]["clamp_loss_change"] == pytest.approx(0, abs=1e-6)
    assert found["tables"]["lemma_2"]["loops"] == [11, 30]
    assert set(found["units"]) >= {"radial_fraction", "state_norm", "scale_range", "clamp_loss_change", "angular_step"}
    json.dumps(found, allow_nan=False)


def test_the_normed_readout_hides_the_scale_and_the_raw_one_shows_it(make_case: MakeCase) -> None:
    probes = {"probes": {name: component("probe", name) for name in ("radial", "scale_sweep")}}
    # the norm's eps makes a small state's scale visible, so the state is made large
    rows = {}
    for readout in ("norm", "raw", "final_only"):
        case = make_case(f"model.readout={readout}", "model.embedding.scale=100.0")
        rows[readout] = run(case, [1, 4], settings=probes).depths
    assert max(row["radial_fraction"] for row in rows["norm"]) < 1e-6
    assert max(row["scale_range"] for row in rows["norm"]) < 1e-3
    assert min(row["radial_fraction"] for row in rows["raw"]) > 1e-3
    assert rows["final_only"][0]["radial_fraction"] > 1e-3
    assert rows["final_only"][1]["radial_fraction"] < 1e-6


def test_a_figure_that_overflows_is_named_and_left_out(make_case: MakeCase) -> None:
    case = make_case("model.embedding.scale=3e4")
    row = run(case, [1]).to_json()["depths"][0]
    assert row["loss"] > 710
    assert "token_ppl" not in row
    assert "token_ppl" in row["not_finite"]


def test_the_origin_is_carried(make_case: MakeCase) -> None:
    found = run(make_case(), [1], origin=ModelSource(run="a", recipe="r", recipe_hash="0", step=7)).to_json()
    assert (found["run"], found["recipe"], found["recipe_hash"], found["step"]) == ("a", "r", "0", 7)
    assert "checkpoint" not in found
    assert found["tokenizer"]["type"] == "bytes"


def test_progress_is_told(make_case: MakeCase) -> None:
    told: list[tuple[int, int]] = []
    result = run(make_case(), [1], progress=lambda done, batches: told.append((done, batches)))
    assert told == [(n, result.batches) for n in range(1, result.batches + 1)]


def test_the_papers_protocol_scores_overlapping_windows_and_has_no_word_figures(make_case: MakeCase) -> None:
    case = make_case()
    found = run(case, [1], settings={"protocol": "paper_a"}).to_json()
    assert found["stride"] == found["window"] // 2
    assert found["tokens_scored"] > 1.5 * case.prepared.splits["validation"].report.tokens
    assert "word_ppl" not in found["depths"][0]
    assert "bits_per_byte" not in found["depths"][0]
    assert "words" not in found


def test_more_context_does_not_change_what_is_scored(make_case: MakeCase) -> None:
    case = make_case()
    half = run(case, [1], settings={"stride": 16}).to_json()
    whole = run(case, [1]).to_json()
    assert half["stride"] == 16
    assert whole["stride"] == whole["window"] == 32
    assert half["tokens_scored"] == whole["tokens_scored"]
    assert half["batches"] > whole["batches"]


def test_figures_are_those_that_registrations_declare(make_case) -> None:
    """``validate`` refuses two tasks or probes under one figure's name by what they declare."""
    declared = {
        (offer.kind, offer.name): offer.schema.traits["figures"]
        for kind in ("probe", "task")
        for offer in catalog(False).of(kind)
        if offer.schema and "figures" in offer.schema.traits
    }
    probes = {name for kind, name in declared if kind == "probe"}
    assert probes == set(catalog(False).names("probe"))
    asked = ", ".join(f"{name}: {{}}" for name in sorted(probes))
    case = make_case(f"evaluate.probes={{{asked}}}", "evaluate.tasks.perplexity={}", "evaluate.max_tokens=300")
    rows = run(case, [1, 2]).to_json()["depths"]
    found = {name for row in rows for name in row} - {"depth", "trained"}
    wanted = set().union(
        *(names for (kind, name), names in declared.items() if kind == "probe" or name == "perplexity")
    )
    assert found == wanted
