"""Exports: equal to what was imported, trained weights in its form, and models that no form can represent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import loopkit
from loopkit.errors import UserError
from loopkit.interop import export_run, exporting, import_folder
from loopkit.interop.roundtrip import NotRepresentable
from loopkit.loop import Batch, Loops
from loopkit.recipe import Recipe, load_recipe, recipe_of
from loopkit.runs import CheckpointProblem, NoRun, RunFolder, read_provenance
from loopkit.runs.checkpoint import WEIGHTS
from tests.interop.folders import CONFIG, assert_same_model, load_tensors, tensors, with_tokenizer, write
from tests.training.runs import fit


def recipe(tmp_path: Path, **train: Any) -> Recipe:
    """A recipe of the Ouro form, as large as the tests' folders."""
    norm = {"type": "rmsnorm", "eps": 1e-6}
    values = {
        "loopkit": 2,
        "data": {"source": "python_docs", "tokenizer": "bytes", "length": 16},
        "model": {
            "width": 16,
            "vocabulary": 300,
            "position": {"type": "rope", "base": 1e6},
            "block": {
                "type": "transformer",
                "attention": {"heads": 4, "kv_heads": 2},
                "mlp": {"type": "swiglu", "hidden": 24},
                "norm": norm,
                "placement": "pre_sandwich",
            },
            "core": 2,
            "carry": "readout",
            "readout": {"type": "norm", "norm": norm},
            "gate": {"type": "linear", "reads": "readout"},
            "head": "untied",
        },
        "objective": {"supervision": "exit_weighted"},
        "train": {"steps": 2, "batch": 2, "precision": "fp32", "lr": 1e-2, "device": "cpu"} | train,
        "evaluate": {"every": None},
    }
    values["train"] |= {"schedule": {"type": "fixed", "loops": 3}} if "schedule" not in train else {}
    return recipe_of(values, tmp_path / "recipe.yaml")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_import_then_export_is_the_identity(tmp_path: Path, shards: int, dtype: torch.dtype) -> None:
    folder = with_tokenizer(write(tmp_path / "ouro", tensors(dtype), shards=shards))
    import_folder(folder, RunFolder(tmp_path / "run"))
    result = export_run(tmp_path / "run", tmp_path / "out")
    assert result.unchanged
    assert result.notes == ()
    assert_same_model(tmp_path / "out", folder)


def test_mixed_types_are_kept(tmp_path: Path) -> None:
    weights = tensors()
    weights["model.norm.weight"] = weights["model.norm.weight"].float()
    folder = write(tmp_path / "ouro", weights)
    import_folder(folder, RunFolder(tmp_path / "run"))
    result = export_run(tmp_path / "run", tmp_path / "out")
    assert (result.unchanged, result.types) == (True, ("bfloat16", "float32"))
    assert_same_model(tmp_path / "out", folder)


def test_unknown_configuration_keys_are_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", some_new_key={"a": [1]}, transformers_version="9.9")
    import_folder(folder, RunFolder(tmp_path / "run"), ignore=["some_new_key"], overrides=["data.length=128"])
    export_run(tmp_path / "run", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["some_new_key"], config["transformers_version"]) == ({"a": [1]}, "9.9")
    assert config["max_position_embeddings"] == 128


@pytest.mark.parametrize("repeated", [False, True])
def test_tied_head_is_exported_once(tmp_path: Path, repeated: bool) -> None:
    weights = tensors(tied=True)
    folder = write(tmp_path / "ouro", weights, tie_word_embeddings=True)
    extra = {"lm_head.weight": weights["model.embed_tokens.weight"].clone()} if repeated else {}
    source = write(tmp_path / "source", weights | extra, tie_word_embeddings=True)
    import_folder(source, RunFolder(tmp_path / "run"))
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged
    assert_same_model(tmp_path / "out", folder)


@pytest.mark.parametrize("name", ["hf", "hf_gqa"])
def test_published_reference_is_reproduced(name: str, tmp_path: Path, golden_dir: Path) -> None:
    folder = golden_dir / "ouro_tiny" / name
    import_folder(folder, RunFolder(tmp_path / "run"))
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged
    assert_same_model(tmp_path / "out", folder)


def test_runs_of_the_first_layout_are_exported(tmp_path: Path) -> None:
    """They also keep the headers of the weight files and the index, neither of which is used."""
    folder = write(tmp_path / "ouro")
    import_folder(folder, RunFolder(tmp_path / "run"))
    copies = tmp_path / "run" / "imported"
    (copies / "layout.json").write_text('{"format": 1, "form": "ouro", "shards": {}}')
    (copies / "folder" / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged
    assert_same_model(tmp_path / "out", folder)


def test_trained_weights_are_exported_in_the_imported_form(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=2)
    import_folder(folder, RunFolder(tmp_path / "imported"))
    trained = fit(recipe(tmp_path, start_from=str(tmp_path / "imported")), tmp_path / "trained")
    second = fit(recipe(tmp_path, start_from=str(trained.folder.path), steps=1), tmp_path / "again")
    for run in (trained, second):  # the second inherits the imported files through the first
        out = tmp_path / f"{run.folder.name}-out"
        result = export_run(run.folder.path, out)
        assert (result.form, result.unchanged, result.types) == ("ouro", False, ("bfloat16",))
        assert result.notes == ("the run's weights are float32; they are written as bfloat16",)
        assert json.loads((out / "config.json").read_text()) == CONFIG
        for name in ("generation_config.json", "modeling_ouro.py"):
            assert (out / name).read_bytes() == (folder / name).read_bytes()
        exported, published = load_tensors(out), load_tensors(folder)
        assert {n: (v.dtype, v.shape) for n, v in exported.items()} == {
            n: (v.dtype, v.shape) for n, v in published.items()
        }
        assert not torch.equal(exported["model.norm.weight"], published["model.norm.weight"])
        master = load_file(run.checkpoint.path / WEIGHTS)
        q = master["core.blocks.1.attention.qkv.weight"][:16]
        assert torch.equal(exported["model.layers.1.self_attn.q_proj.weight"], q.bfloat16())

    import_folder(tmp_path / "again-out", RunFolder(tmp_path / "back"))
    reimported, _, _ = loopkit.load(tmp_path / "back")
    model, _, _ = loopkit.load(tmp_path / "again")
    batch = Batch.of(torch.arange(12).view(2, 6))
    with torch.no_grad():
        result, expected = (m.run(batch, Loops.fixed(3)).logits(3) for m in (reimported, model))
    assert 0 < (result - expected).abs().max() < 0.2  # the rounding of bf16


def test_training_starts_from_imported_weights(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "imported"))
    checkpoint = RunFolder(tmp_path / "imported").checkpoint(0)
    for number, start in enumerate((tmp_path / "imported", checkpoint, checkpoint / WEIGHTS)):
        run = fit(recipe(tmp_path, start_from=str(start), steps=1, lr=1e-12), tmp_path / f"run{number}")
        weights = load_file(run.checkpoint.path / WEIGHTS)
        torch.testing.assert_close(weights["head.weight"], tensors()["lm_head.weight"].float())
        assert (run.folder.imported / "folder" / "config.json").is_file()


def test_dtype_option_converts_all_tensors(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=2)
    import_folder(folder, RunFolder(tmp_path / "run"))
    result = export_run(tmp_path / "run", tmp_path / "out", dtype="fp32")
    assert (result.types, result.unchanged) == (("float32",), False)
    assert "are bfloat16; they are written as float32" in result.notes[0]
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == CONFIG | {"dtype": "float32"}
    exported = load_tensors(tmp_path / "out")
    assert all(torch.equal(exported[name], value.float()) for name, value in tensors().items())


def test_a_run_that_was_not_imported(tmp_path: Path) -> None:
    schedule = {"type": "lognormal", "mu": 1.7, "sigma": 0.4, "min": 1, "max": 16}
    trained = fit(recipe(tmp_path, schedule=schedule, steps=1), tmp_path / "trained")
    result = export_run(trained.folder.path, tmp_path / "out", to="ouro")
    assert (result.form, result.types) == ("ouro", ("float32",))
    assert "runs 6, the mean of training" in result.notes[0]
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["total_ut_steps"], config["vocab_size"], config["pad_token_id"]) == (6, 300, 256)
    again = import_folder(tmp_path / "out", RunFolder(tmp_path / "again"), tokenizer="bytes")
    weights, back = load_file(trained.checkpoint.path / WEIGHTS), load_file(again.checkpoint.path / WEIGHTS)
    assert weights.keys() == back.keys()
    assert all(torch.equal(weights[name], back[name]) for name in weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"block": {"placement": "post_sandwich"}},
            "block.placement: 'post_sandwich' in the run, 'pre_sandwich' in ouro",
        ),
        ({"carry": "identity"}, "model.carry: 'identity' in the run, 'readout' in ouro"),
        ({"injection": "add"}, "model.injection: 'add' in the run"),
        ({"gate": {"reads": "state"}}, "model.gate.reads: 'state' in the run, 'readout' in ouro"),
        ({"prelude": 1}, "model.prelude.layers: 1 in the run"),
        ({"block": {"mlp": "gelu"}}, "model.block.mlp: 'gelu' in the run, 'swiglu' in ouro"),
        ({"block": {"norm": {"eps": 1e-5}}}, "model.block.norm.eps: 1e-05 in the run"),
        ({"block": {"attention": {"qk_norm": "rmsnorm"}}}, "model.block.attention.qk_norm: .*None in ouro"),
        ({"position": {"pairing": "interleaved"}}, "model.position.pairing: 'interleaved' in the run"),
        ({"position": "learned"}, "model.position: 'learned' in the run, 'rope' in ouro"),
        ({"embedding": {"scale": "sqrt_width"}}, "model.embedding.scale: 'sqrt_width' in the run"),
        ({"head": {"bias": True}}, "model.head.bias: True in the run"),
    ],
)
def test_unrepresentable_components_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    from loopkit.components.tokenizer.bytes import Bytes
    from loopkit.interop.export_plan import plan_new

    base = recipe(tmp_path)
    changed = recipe_of({**base.values, "model": _merge(dict(base.values["model"]), change)}, tmp_path / "recipe.yaml")
    with pytest.raises(NotRepresentable, match=message):
        plan_new(changed, dict(changed.values["model"]), Bytes())


def _merge(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _merge(below.get(key), value) for key, value in above.items()}


def test_a_changed_recipe_changes_the_configuration(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "imported"))
    other = recipe_of(
        {
            **(base := recipe(tmp_path, start_from=str(tmp_path / "imported"), steps=1)).values,
            "model": _merge(dict(base.values["model"]), {"position": {"base": 10000.0}}),
        },
        tmp_path / "recipe.yaml",
    )
    run = fit(other, tmp_path / "trained")
    result = export_run(run.folder.path, tmp_path / "out")
    assert "config.json differs from the imported one in rope_theta" in result.notes[0]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config == CONFIG | {"rope_theta": 10000.0}


def test_large_models_are_exported_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "ouro")
    import_folder(folder, RunFolder(tmp_path / "run"))
    monkeypatch.setattr(exporting, "SHARD", "10KB")
    export_run(tmp_path / "run", tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 2
    assert_same_model(tmp_path / "out", folder)
    import_folder(tmp_path / "out", RunFolder(tmp_path / "again"))  # checks that index and files agree


def test_existing_folder_missing_run_or_step_is_refused(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="another folder with --out"):
        export_run(tmp_path / "run", tmp_path / "out")
    with pytest.raises(NoRun, match="no run is named"):
        export_run(tmp_path / "none", tmp_path / "new")
    with pytest.raises(CheckpointProblem, match="no checkpoint of step 7"):
        export_run(tmp_path / "run", tmp_path / "new", step=7)
    assert not (tmp_path / "new").exists()


def test_a_missing_source_configuration_is_reported(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))
    config = tmp_path / "run" / "imported" / "folder" / "config.json"
    config.write_text("{")
    with pytest.raises(UserError, match=r"config.json: not JSON"):
        export_run(tmp_path / "run", tmp_path / "out")
    config.unlink()
    with pytest.raises(UserError, match=r"config.json is missing; put the published file back, or import"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_imported_run_cannot_be_resumed(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))
    with pytest.raises(CheckpointProblem, match=r"cannot be resumed; start a new run from it with train.start_from"):
        fit(load_recipe(tmp_path / "run" / "resolved.yaml"), tmp_path / "run", resume=True)


def test_start_from_a_wrong_path_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist; give a run"):
        fit(recipe(tmp_path, start_from=str(tmp_path / "none")), tmp_path / "run")
    folder = write(tmp_path / "ouro")
    with pytest.raises(ValueError, match=r"is a published model, not a run; .*loopkit import"):
        fit(recipe(tmp_path, start_from=str(folder)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_without_import_inherits_no_files(tmp_path: Path) -> None:
    first = fit(recipe(tmp_path, steps=1), tmp_path / "first")
    second = fit(recipe(tmp_path, steps=1, start_from=str(first.folder.path)), tmp_path / "second")
    assert not second.folder.imported.exists()
    assert "imported" not in read_provenance(second.folder.provenance)


def test_a_run_with_plugin_components_is_exported(tmp_path: Path) -> None:
    """Only the run's recipe names the plugin of its tokenizer."""
    (tmp_path / "words.py").write_text(
        "from loopkit.components.tokenizer.bytes import Bytes\nfrom loopkit.registry import register\n\n\n"
        '@register("tokenizer", "own_words")\n'
        'class Words(Bytes):\n    """Bytes by another name."""\n\n    def __init__(self) -> None:\n        pass\n'
    )
    values = dict(recipe(tmp_path).values) | {"plugins": ["words.py"]}
    values["data"] = values["data"] | {"tokenizer": "own_words"}
    fit(recipe_of(values, tmp_path / "recipe.yaml"), tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "out", to="ouro").form == "ouro"
    _, tokenizer, _ = loopkit.load(tmp_path / "run")
    assert type(tokenizer).__name__ == "Words"
