"""Imports: what a folder becomes, and everything that is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import loopkit
from loopkit.interop import import_folder
from loopkit.interop.architectures import UnknownForm
from loopkit.interop.config import ConfigError
from loopkit.interop.published import PublishedError
from loopkit.loop import Batch, Loops
from loopkit.recipe import RecipeError
from loopkit.runs import RunExists, RunFolder, read_provenance
from loopkit.runs.checkpoint import WEIGHTS
from tests.interop.folders import HIDDEN, VOCABULARY, WIDTH, tensors, with_tokenizer, write


def assert_refused(folder: Path, error: type[Exception], match: str, **options: Any) -> None:
    """Check that a folder is refused and that no part of a run remains."""
    runs = folder.parent / "runs"
    with pytest.raises(error, match=match):
        import_folder(folder, RunFolder(runs / "run"), **options)
    assert not runs.exists() or list(runs.iterdir()) == []


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_becomes_a_run(tmp_path: Path, shards: int) -> None:
    folder = with_tokenizer(write(tmp_path / "ouro", shards=shards))
    run = RunFolder(tmp_path / "runs" / "run")
    result = import_folder(folder, run, command=["loopkit", "import"])
    assert (result.form, result.loops, result.tokenizer) == ("ouro", 3, "huggingface")
    assert (result.left_out, result.notes) == ((), ())
    assert result.parameters == sum(value.numel() for value in tensors().values())

    model, tokenizer, recipe = loopkit.load(run.path)
    assert {value.dtype for value in model.parameters()} == {torch.float32}  # the master weights
    weights = tensors()
    assert torch.equal(model.head.weight, weights["lm_head.weight"].float())
    q, k, v = (weights[f"model.layers.1.self_attn.{letter}_proj.weight"].float() for letter in "qkv")
    assert torch.equal(model.core.blocks[1].attention.qkv.weight, torch.cat([q, k, v]))  # type: ignore[union-attr]
    norm = weights["model.layers.0.post_attention_layernorm_2.weight"].float()
    assert torch.equal(model.core.blocks[0].around_mlp.norm_out.weight, norm)  # type: ignore[union-attr]
    assert model.run(Batch.of(torch.tensor([[1, 2, 299]])), Loops.fixed(5)).logits(5).isfinite().all()

    on_disk = load_file(result.checkpoint.check().path / WEIGHTS)
    assert {value.dtype for value in on_disk.values()} == {torch.bfloat16}
    assert tokenizer.decode(tokenizer.encode(["Hello"])[0]) == "Hello"
    assert (tokenizer.size, model.vocabulary) == (98, VOCABULARY)
    assert recipe.model.vocabulary == VOCABULARY
    assert recipe.data.length == 64

    facts = read_provenance(run.provenance)
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    assert facts["imported"]["sha256"] == digests
    assert facts["imported"]["folder"] == "ouro"
    assert facts["sessions"][0]["status"] == "imported"
    assert run.resolved.read_text().count(".partial") == 0


def test_a_moved_run_can_be_loaded(tmp_path: Path) -> None:
    import_folder(with_tokenizer(write(tmp_path / "ouro")), RunFolder(tmp_path / "a"))
    (tmp_path / "ouro").rename(tmp_path / "gone")
    (tmp_path / "a").rename(tmp_path / "b")
    assert loopkit.load(tmp_path / "b")[1].size == 98


@pytest.mark.parametrize("repeated", [False, True])
def test_a_tied_head_is_shared(tmp_path: Path, repeated: bool) -> None:
    weights = tensors(tied=True)
    if repeated:  # as some folders do
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    folder = write(tmp_path / "ouro", weights, tie_word_embeddings=True)
    import_folder(folder, RunFolder(tmp_path / "run"))
    model, _, _ = loopkit.load(tmp_path / "run")
    assert model.head.weight is model.embedding.tokens.weight
    assert torch.equal(model.head.weight, weights["model.embed_tokens.weight"].float())


def test_a_tied_head_with_other_numbers_is_refused(tmp_path: Path) -> None:
    weights = tensors() | {}
    assert_refused(
        write(tmp_path / "ouro", weights, tie_word_embeddings=True),
        PublishedError,
        "lm_head.weight: config.json ties it to model.embed_tokens.weight, but their numbers differ",
    )


def test_heads_need_not_divide_the_width(tmp_path: Path) -> None:
    weights = tensors()
    for i in range(2):
        for letter, rows in (("q", 32), ("k", 16), ("v", 16)):
            weights[f"model.layers.{i}.self_attn.{letter}_proj.weight"] = torch.randn(rows, WIDTH).bfloat16()
        weights[f"model.layers.{i}.self_attn.o_proj.weight"] = torch.randn(WIDTH, 32).bfloat16()
    import_folder(write(tmp_path / "ouro", weights, head_dim=8), RunFolder(tmp_path / "run"))
    model, _, _ = loopkit.load(tmp_path / "run")
    assert model.core.blocks[0].attention.head_size == 8  # type: ignore[union-attr]


def test_text_is_token_numbers_without_a_tokenizer(tmp_path: Path) -> None:
    result = import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))
    assert result.tokenizer == "numbers"
    assert "has no tokenizer.json" in result.notes[0]
    _, tokenizer, _ = loopkit.load(tmp_path / "run")
    assert tokenizer.encode(["299 0"])[0].tolist() == [299, 0]


def test_tokenizer_option(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro")
    assert import_folder(folder, RunFolder(tmp_path / "a"), tokenizer="bytes").tokenizer == "bytes"
    other = with_tokenizer(write(tmp_path / "other"))
    import_folder(folder, RunFolder(tmp_path / "b"), tokenizer=str(other))
    assert loopkit.load(tmp_path / "b")[1].size == 98
    assert_refused(folder, RecipeError, "no tokenizer is called 'byts'", tokenizer="byts")
    assert_refused(folder, ValueError, "learns its vocabulary from a text", tokenizer="characters")


def test_a_tokenizer_larger_than_the_table_is_refused(tmp_path: Path) -> None:
    weights = tensors()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:50].clone()
    folder = with_tokenizer(write(tmp_path / "ouro", weights, vocab_size=50))
    assert_refused(folder, ValueError, "a table of 50 rows cannot hold the 98 tokens")


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(RunExists, match="another folder with --out"):
        import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))


def test_overrides_change_data_but_not_the_model(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro")
    import_folder(folder, RunFolder(tmp_path / "run"), overrides=["data.length=32", "evaluate.batch=2"])
    _, _, recipe = loopkit.load(tmp_path / "run")
    assert (recipe.data.length, recipe.evaluate.batch) == (32, 2)
    assert_refused(folder, ValueError, "config.json determines the model", overrides=["model.carry=identity"])
    assert_refused(folder, RecipeError, "did you mean 'length'", overrides=["data.lenght=32"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling is .*scaled rotary positions"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_parameters is .*scaled rotary"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "has partial_rotary_factor"),
        ({"use_sliding_window": True, "sliding_window": 8}, "use_sliding_window is True: sliding-window attention"),
        ({"use_sliding_window": None, "sliding_window": 8}, "sliding_window is 8"),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            "layer_types is .*must have full attention",
        ),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*loopkit does not read this key"),
        ({"logit_cap": 30.0}, "logit_cap is 30.0: .*--ignore logit_cap"),
        ({"hidden_size": "16"}, "hidden_size is '16': it must be an integer"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no': it must be true or false"),
        ({"rope_theta": -1}, "rope_theta is -1: it must be a number"),
    ],
)
def test_unsupported_configurations_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    assert_refused(write(tmp_path / "ouro", **change), ConfigError, message)


def test_all_configuration_problems_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        import_folder(write(tmp_path / "ouro", logit_cap=1.0, attention_bias=True), RunFolder(tmp_path / "run"))
    assert "logit_cap" in str(caught.value)
    assert "attention_bias" in str(caught.value)


def test_keys_without_effect_are_accepted(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "ouro",
        rope_scaling={"rope_type": "default"},
        sliding_window=4096,  # use_sliding_window is false
        some_new_flag=False,
        logit_cap=30.0,
        early_exit_threshold=0.7,
    )
    result = import_folder(folder, RunFolder(tmp_path / "run"), ignore=["logit_cap"])
    assert "gate_cdf with threshold 0.7" in result.notes[0]


def test_rotary_base_in_rope_parameters_is_read(tmp_path: Path) -> None:
    newer = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    import_folder(write(tmp_path / "ouro", **newer), RunFolder(tmp_path / "run"))
    assert loopkit.load(tmp_path / "run")[2].model.position.options["base"] == 5e5


@pytest.mark.parametrize(
    "change", [{"model_type": "llama"}, {"architectures": ["OuroForSequenceClassification"]}, {"model_type": None}]
)
def test_other_architectures_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    assert_refused(write(tmp_path / "ouro", **change), UnknownForm, r"it reads .*ouro \(OuroForCausalLM\)")


def test_tensors_must_fit_the_configuration(tmp_path: Path) -> None:
    weights = tensors()
    del weights["model.layers.1.self_attn.k_proj.weight"]
    weights["model.layers.0.self_attn.rotary_emb.scale"] = torch.ones(2)
    weights["model.layers.0.mlp.up_proj.weight"] = torch.ones(WIDTH, HIDDEN)  # transposed
    folder = write(tmp_path / "ouro", weights)
    with pytest.raises(PublishedError) as caught:
        import_folder(folder, RunFolder(tmp_path / "run"))
    text = str(caught.value)
    assert "missing: model.layers.1.self_attn.k_proj.weight" in text
    assert "unknown to this form: model.layers.0.self_attn.rotary_emb.scale" in text
    assert f"up_proj.weight: its shape is [{WIDTH}, {HIDDEN}]; config.json implies [{HIDDEN}, {WIDTH}]" in text


def test_swapped_queries_and_keys_are_refused(tmp_path: Path) -> None:
    weights = tensors()
    q, k = (f"model.layers.0.self_attn.{letter}_proj.weight" for letter in "qk")
    weights[q], weights[k] = weights[k], weights[q]  # the fused matrix keeps its size
    assert_refused(write(tmp_path / "ouro", weights), PublishedError, r"q_proj.weight: its shape is \[8, 16\]")


def test_mixed_types_in_one_tensor_are_refused(tmp_path: Path) -> None:
    weights = tensors()
    name = "model.layers.0.self_attn.k_proj.weight"
    weights[name] = weights[name].float()
    assert_refused(write(tmp_path / "ouro", weights), PublishedError, "types BF16, F32")


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert_refused(
        folder, PublishedError, "missing weight files that .*index.json names: model-00002-of-00003.safetensors"
    )


def test_an_inconsistent_index_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=2)
    index = folder / "model.safetensors.index.json"
    record = json.loads(index.read_text())
    record["weight_map"]["model.extra"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(record))
    assert_refused(folder, PublishedError, "-of-00002.safetensors: compared with its index it lacks model.extra")
    del record["weight_map"]["model.extra"], record["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(record))
    assert_refused(folder, PublishedError, "also holds model.norm.weight")
    record["weight_map"]["model.norm.weight"] = "../elsewhere.safetensors"
    index.write_text(json.dumps(record))
    assert_refused(folder, PublishedError, "is not the name of a weight file in the folder")
    index.write_text("[]")
    assert_refused(folder, PublishedError, "not a JSON object")
    index.write_text("{}")
    assert_refused(folder, PublishedError, "it has no weight_map")


def test_weights_in_two_forms_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=2)
    write(folder)
    assert_refused(folder, PublishedError, "not in model.safetensors.index.json: model.safetensors")


def test_shards_without_index_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=2)
    (folder / "model.safetensors.index.json").unlink()
    assert_refused(folder, PublishedError, "2 weight files and no index")


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert_refused(folder, PublishedError, "pytorch_model.bin: loopkit reads only safetensors")
    (folder / "pytorch_model.bin").unlink()
    assert_refused(folder, PublishedError, "has no weights")


def test_pickles_and_hidden_files_are_not_copied(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro")
    for name in ("pytorch_model.bin", "optimizer.pt", "pytorch_model.bin.index.json", ".gitattributes"):
        (folder / name).write_bytes(b"\x80\x04.")
    (folder / "original").mkdir()
    result = import_folder(folder, RunFolder(tmp_path / "run"))
    skipped = {"pytorch_model.bin", "optimizer.pt", "pytorch_model.bin.index.json", ".gitattributes", "original"}
    assert set(result.left_out) == skipped
    assert not skipped & {file.name for file in result.folder.imported.rglob("*")}
    assert "modeling_ouro.py" in {file.name for file in result.folder.imported.rglob("*")}


@pytest.mark.parametrize("source_kind", ["nothing", "file", "empty"])
def test_a_path_without_model_is_refused(tmp_path: Path, source_kind: str) -> None:
    source = tmp_path / "source"
    if source_kind == "file":
        source.write_text("{}")
    if source_kind == "empty":
        source.mkdir()
    match = {"nothing": "does not exist", "file": "is a file", "empty": "has no config.json"}[source_kind]
    assert_refused(source, PublishedError, match)


def test_a_configuration_without_json_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro")
    (folder / "config.json").write_text("{")
    assert_refused(folder, PublishedError, "config.json: not JSON")


def test_a_truncated_weight_file_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro")
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-2])
    assert_refused(folder, PublishedError, "model.safetensors cannot be read as safetensors: .*get the file again")


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    weights = tensors() | {"model.norm.weight": torch.ones(WIDTH, dtype=torch.int8)}
    assert_refused(write(tmp_path / "ouro", weights), PublishedError, "'model.norm.weight' has type I8")


def test_a_failed_import_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from loopkit.interop import importing

    def full(*_: object, **options: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(importing, "save_file", full)
    assert_refused(write(tmp_path / "ouro"), OSError, "no space left")


def test_numbers_are_imported_without_rounding(tmp_path: Path) -> None:
    weights = tensors(torch.float32)
    weights["model.norm.weight"] = torch.tensor([1.0, np.pi, -0.0, 1e-45, 3e38, *[2.0] * 11])
    result = import_folder(write(tmp_path / "ouro", weights), RunFolder(tmp_path / "run"))
    stored = load_file(result.checkpoint.path / WEIGHTS)["readout.norm.weight"]
    assert stored.numpy().tobytes() == weights["model.norm.weight"].numpy().tobytes()
