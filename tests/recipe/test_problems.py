"""Problems of recipes: all are reported at once, each with its place and a remedy."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from loopkit.recipe import RecipeError, component, load_recipe, problems_of
from tests.recipe.conftest import BASE

FIVE = """\
loopkit: 2
data:
  source: python_docs
  tokenizer: {type: bytes}
  length: 32
  strid: 16
model:
  width: 32
  block: {attention: {heads: 5}}
  core: 2
  readout: rw
train:
  steps: 4
  batch: "4"
  schedule: {type: lognormal, sigmma: 0.5, max: 8}
  lr: {type: constant, peak: -1.0}
"""


def test_five_faults_are_five_problems_in_order(write) -> None:
    file = write(FIVE)
    with pytest.raises(RecipeError) as caught:
        load_recipe(file)
    places = [(p.origin.line, ".".join(p.path)) for p in caught.value.problems]
    assert places == [
        (6, "data.strid"),
        (9, "model.block.attention.heads"),
        (11, "model.readout"),
        (14, "train.batch"),
        (15, "train.schedule.sigmma"),
        (16, "train.lr.peak"),
    ]
    text = str(caught.value)
    assert "did you mean 'stride'?" in text
    assert "5 does not divide model.width (32)" in text
    assert "no readout is called 'rw'\n   11 |   readout: rw\n   hint: did you mean 'raw'? loopkit list readout" in text
    assert "must be an integer > 0, not '4'" in text
    assert "schedule 'lognormal' has no option 'sigmma'" in text
    assert "did you mean 'sigma'? options: max, min, mu, sigma" in text


def one(write, *overrides: str, text: str = BASE) -> str:
    """The only problem of a recipe with these overrides."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(text), overrides=overrides)
    assert len(caught.value.problems) == 1, str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.readout=rw", "--set model.readout=rw: model.readout: no readout is called 'rw'"),
        ("model.width=8.0", "must be an integer > 0, not 8.0"),
        ("model.width=null", "must be an integer > 0, not null"),
        ("seed=yes", "must be an integer >= 0 and <= 18446744073709551615, not 'yes'"),
        ("train.compile=no", "must be true or false, not 'no'"),
        ("train.clip=.inf", "must be a number > 0 or null, not inf"),
        ("train.backprop=most", "must be an integer > 0 or 'all', not 'most'"),
        ("train.backprop=3", "3 loops cannot carry gradient: the schedule runs at most 2"),
        ("train.micro_batch=3", "3 does not divide train.batch (4)"),
        ("data.stride=64", "64 is more than data.length (32)"),
        ("evaluate.depths=8-1", "runs backwards"),
        ("evaluate.depths=0", "must be"),
        ("train.trainable=[]", "must be a list, each entry text with at least 1"),
        ("train.deepspeed={train_batch_size: 3}", "set train.batch instead"),
        ("train={optimizer: muon, deepspeed: {zero_optimization: {stage: 3}}}", "needs whole_matrices; ZeRO-3 cuts"),
        (
            "train={optimizer: muon, deepspeed: {zero_optimization: {stage: 1, round_robin_gradients: true}}}",
            "set train.deepspeed.zero_optimization.round_robin_gradients to false",
        ),
        (
            "train={optimizer: muon, deepspeed: {zero_optimization: {stage: 2, parameter_alignment: true}}}",
            "set train.deepspeed.zero_optimization.parameter_alignment to false",
        ),
        ("objective.supervision=exit_weighted", "needs gate, which nothing in this recipe provides"),
        ("objective.supervision=exit_weighted", "choose gate 'linear'"),
        ("model.readout=[norm]", "must be the name of a readout or a map"),
        ("model.readout=3", "must be the name of a readout or a map"),
        ("model.embedding=3", "must be a map with the options of embedding"),
        ("objective.regularizers=norm_penalty", "must be a map, each entry one regularizer"),
        ("objective.regularizers.norm_penalty=true", "false to remove it"),
        ("objective.regularizers.norm_penalti={}", "did you mean 'norm_penalty'"),
        ("model.carry={type: chain, of: []}", "a list of at least 1"),
        ("loopkit=3", "must be 2, not 3"),
        ("train.schedule={type: uniform, sigma: 1.0, max: 4}", "'sigma' is an option of schedule lognormal"),
        ("evaluate.depths=999999999999", "is more than 10,000 loops"),
        ("evaluate.depths=1-10001", "is more than 10,000 loops"),
        ("train.schedule=999999999999", "train.schedule.loops: 999999999999 is more loops than can be run"),
        ("train.schedule={type: curriculum, of: {type: uniform, max: 10001}}", "10001 is more loops than can be run"),
        ("data.source=text", "exactly one of path, files and dataset is required"),
        ("data.source={type: text, path: a, dataset: b/c}", "path and dataset exclude each other"),
        ("data.tokenizer=huggingface", "exactly one of path and name is required"),
        ("train.heads=3", "write it at model.block.attention.heads"),
    ],
)
def test_each_fault_is_one_problem_with_remedy(write, override: str, message: str) -> None:
    assert message in one(write, override)


HURRIED = """\
from loopkit.components.core import Stack
from loopkit.registry import register

@register("core", "hurried", uses_total=True)
class Hurried(Stack):
    '''Loops that know how many there are.

    Args:
        layers: Number of blocks.
    '''

    def __init__(self, block: object, *, layers: int = 1) -> None:
        super().__init__(block, layers=layers)
"""


def test_loops_per_sequence_excludes_components_with_uses_total(write) -> None:
    write(HURRIED, "hurried.py")
    child_text = BASE.replace("core: 2", "core: hurried") + "plugins: [hurried.py]\n"
    load_recipe(write(child_text))
    load_recipe(write(child_text), overrides=["train.loops_per=micro_step"])
    load_recipe(write(), overrides=["train.loops_per=sequence"])
    text = one(write, text=child_text.replace("schedule: 2", "schedule: 2, loops_per: sequence"))
    assert "mine.yaml:8: train.loops_per: core 'hurried' at model.core depends on how many loops a pass has" in text
    assert "hint: step or micro_step" in text


def test_alternative_replaces_the_inherited_one(write) -> None:
    write(BASE.replace("source: python_docs", "source: {type: text, path: a.txt}"), "parent.yaml")
    child = load_recipe(write("extends: parent.yaml\ndata: {source: {files: {train: b.txt}}}\n"))
    assert child.values["data"]["source"]["path"] is None


def test_map_paths_are_relative_to_their_file(write, tmp_path: Path) -> None:
    files = "source: {type: text, files: {train: a.txt, validation: /b.txt}}"
    recipe = load_recipe(write(BASE.replace("source: python_docs", files)))
    assert recipe.data.source.options["files"] == {"train": tmp_path / "a.txt", "validation": Path("/b.txt")}
    assert recipe.values["data"]["source"]["files"]["train"] == str(tmp_path / "a.txt")


def test_many_problems_are_truncated_quickly(write) -> None:
    start = time.process_time()
    file = write(BASE + "".join(f"key{n}: {n}\n" for n in range(3000)))
    with pytest.raises(RecipeError) as caught:
        load_recipe(file)
    assert time.process_time() - start < 5
    assert len(caught.value.problems) == 3000
    assert str(caught.value).count("\n") <= 300
    assert "... and 2,900 more problems" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("more: [" + "x, " * 6000 + "]\n", "has more than 5,000 values"),
        ("profiles: {" + ", ".join(f"p{n}: {{}}" for n in range(51)) + "}\n", "at most 50 are allowed"),
    ],
)
def test_oversized_recipes_are_rejected(write, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        problems_of(write(BASE + text))


def test_overlong_override_is_rejected(write) -> None:
    with pytest.raises(RecipeError, match="is 2,000,005 characters long"):
        load_recipe(write(), (), ["seed=" + "9" * 2_000_000])


def test_missing_required_option_is_described(write) -> None:
    text = one(write, text=BASE.replace("  width: 32\n", ""))
    assert "model.width: is required" in text
    assert "hint: add an integer > 0: channels of the state" in text


def test_validate_reports_faults_in_profiles(write) -> None:
    file = write(BASE + "profiles: {mini: {train: {stepz: 3}}}\n")
    load_recipe(file)
    (problem,) = problems_of(file)
    assert problem.path == ("train", "stepz")
    assert problem.origin.line == 9


def test_component_checks_its_options() -> None:
    assert component("norm", "rmsnorm")(width=4)
    with pytest.raises(RecipeError, match=r"3 does not divide width \(32\)"):
        component("attention", {"type": "causal", "heads": 3}, width=32)
    with pytest.raises(RecipeError, match="is a name or a map"):
        component("norm", 3)


def test_wrong_value_in_a_map_is_named(write) -> None:
    assert "model.tie: 'coda.norm' in it must be text, not 3" in one(write, "model.tie={coda.norm: 3}")


@pytest.mark.parametrize(
    "override",
    [
        "train.schedule=999999999999",
        "train.schedule={type: curriculum, of: {type: uniform, max: 10001}}",
        "evaluate.depths=999999999999",
        "evaluate.depths=1-10001",
    ],
)
def test_too_many_loops_are_rejected(write, override: str) -> None:
    assert "more" in one(write, override)
    assert "loops" in one(write, override)


def test_largest_number_of_loops_is_allowed(write) -> None:
    recipe = load_recipe(write(), overrides=["train.schedule=10000", "evaluate.depths=1,10000"])
    assert recipe.train.schedule.options["loops"] == 10_000


@pytest.mark.parametrize("source", ["text", "math_sft", "{type: text, path: a, dataset: b}"])
def test_source_location_is_given_once(write, source: str) -> None:
    message = one(write, f"data.source={source}")
    assert "exactly one of path" in message or "path and dataset exclude each other" in message


def test_paths_in_a_map_start_at_their_folder(write) -> None:
    (write().parent / "sub").mkdir()
    file = write(
        BASE.replace("source: python_docs", "source: {type: text, files: {train: a.txt, validation: /b.txt}}"),
        "sub/r.yaml",
    )
    files = load_recipe(file).values["data"]["source"]["files"]
    assert files == {"train": str(file.parent / "a.txt"), "validation": "/b.txt"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "zero_optimisation={stage: 2}",
            "deepspeed has no option 'zero_optimisation'\n   hint: did you mean 'zero_optimization'?",
        ),
        ("zero_optimization={stge: 2}", "zero_optimization.stge: zero_optimization has no option 'stge'"),
        ("zero_optimization={stge: 2}", "did you mean 'stage'?"),
        ("zero_optimization={offload_optimizer: {devise: cpu}}", "did you mean 'device'?"),
        ("timers={throughput: {enable: true}}", "did you mean 'enabled'?"),
        ("activation_checkpointing={partition_activation: true}", "did you mean 'partition_activations'?"),
        ("zero_optimization=2", "train.deepspeed.zero_optimization: must be a map, not 2"),
        ("zero_optimization={stage: 7}", "zero_optimization.stage: must be 0 or 1 or 2 or 3, not 7"),
        ("zero_optimization={stage: auto}", 'not "auto"'),
        ("zero_optimization={stage: true}", "not true"),
        ("zero_optimization={reduce_bucket_size: -1}", "must be an integer > 0, not -1"),
        ("zero_optimization={overlap_comm: 1}", "must be true or false or null, not 1"),
        ("bfloat16={enabled: true}", "set train.precision instead"),
        ("elasticity={enabled: true}", "set train.batch instead"),
        ("sparse_attention={}", "deepspeed has no option 'sparse_attention'"),
    ],
)
def test_deepspeed_keys_are_checked_at_every_level(write, override: str, message: str) -> None:
    assert message in one(write, f"train.deepspeed.{override}")


def test_deepspeed_keys_that_exist_pass(write) -> None:
    text = "{zero_optimization: {stage: 2, reduce_bucket_size: 5e8, offload_optimizer: null}, comms_logger: {}}"
    assert load_recipe(write(), overrides=[f"train.deepspeed={text}"])


def test_unknown_deepspeed_key_is_shown_on_its_line(write) -> None:
    text = BASE.replace(
        "train: {steps: 4, batch: 4, schedule: 2, lr: 1e-3}",
        "train:\n  steps: 4\n  batch: 4\n  deepspeed:\n    zero_optimization:\n      stge: 1",
    )
    assert "mine.yaml:13: train.deepspeed.zero_optimization.stge" in one(write, text=text)


def test_deepspeed_keys_match_the_installed_version() -> None:
    import deepspeed

    from tests.recipe.deepspeed_keys import TABLE, table

    committed = json.loads(TABLE.read_text())
    if deepspeed.__version__ != committed["version"]:
        pytest.skip(f"the table is that of {committed['version']}")
    assert table() == committed, "python -m tests.recipe.deepspeed_keys"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("evaluate.probes={norms: {}, n: norms}",),
            "evaluate.probes.norms and it both give a figure called 'state_norm'",
        ),
        (("evaluate.tasks={perplexity: {}, again: perplexity}",), "both give a figure called 'bits_per_byte'"),
        (("evaluate.stride=33",), "evaluate.stride: 33 is more than data.length (32)"),
        (("seed=18446744073709551616",), "must be an integer >= 0 and <= 18446744073709551615"),
        (("train.checkpoint.best=los", "evaluate.tasks.perplexity={}"), "nothing under evaluate measures 'los'"),
        (("train.checkpoint.best=loss",), "evaluate has neither tasks nor probes"),
        (
            ("train.checkpoint.best={figure: loss, depth: 3}", "evaluate={depths: 1-2, tasks: {perplexity: {}}}"),
            "train.checkpoint.best.depth: 3 is not among evaluate.depths, which is 1-2",
        ),
        (
            ("train.ema=0.99", "train.deepspeed={zero_optimization: {stage: 3, offload_param: {device: nvme}}}"),
            "train.ema.decay: the average does not reach weights that train.deepspeed.zero_optimization.offload_param",
        ),
        (
            ("train.ema=0.99", "train.deepspeed={zero_optimization: {stage: 3, zero_hpz_partition_size: 2}}"),
            "train.ema.decay: train.deepspeed.zero_optimization.zero_hpz_partition_size keeps a second copy",
        ),
        (
            ("train.start_from=runs/a", "train.start_weights=ema", "train.start_optimizer=true"),
            "train.start_optimizer: the optimizer state belongs to the trained weights",
        ),
        (("train.ema=1.0",), "train.ema.decay: must be a number >= 0 and < 1 or null, not 1.0"),
        (("model.start=zeros",), "model.injection: injection 'none' adds no input and start 'zeros' has none"),
        (("model.start=normal",), "logits would not depend on the tokens"),
    ],
)
def test_impossible_combinations_are_rejected(write, overrides: tuple[str, ...], message: str) -> None:
    assert message in one(write, *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ("evaluate.stride=33", "evaluate.protocol=half_overlap"),
        ("evaluate.stride=33", "data.source=addition", "data.tokenizer={type: numbers, size: 20}"),
        (
            "evaluate.probes={norms: {}, spectral: {}, radial: {}, update: {}, clamp: {}}",
            "evaluate.tasks.perplexity={}",
        ),
        ("train.checkpoint.best=state_norm.mean", "evaluate.probes.norms={}"),
        ("seed=18446744073709551615",),
        ("train.ema=0.99", "train.deepspeed={zero_optimization: {stage: 3}}"),
        ("train.ema.start=0.2", "train.deepspeed={zero_optimization: {stage: 3, zero_hpz_partition_size: 2}}"),
        ("model.start=zeros", "model.injection=add"),
        ("model.start=zeros", "model.block.attention.value_embeddings=all"),
    ],
)
def test_possible_combinations_are_accepted(write, overrides: tuple[str, ...]) -> None:
    assert load_recipe(write(), (), overrides)
