"""What goes out: the folder as it came, trained weights in its form, and models that no form can say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import loopkit
from loopkit.errors import UserError
from loopkit.interop import export_run, import_folder
from loopkit.interop.layout import new
from loopkit.interop.roundtrip import NotRepresentable
from loopkit.loop import Batch, Loops
from loopkit.recipe import Recipe, load_recipe, recipe_of
from loopkit.runs import CheckpointProblem, NoRun, RunFolder, read_provenance
from loopkit.runs.checkpoint import WEIGHTS
from tests.interop.folders import CONFIG, digests, loaded, tensors, with_tokenizer, write
from tests.training.runs import fit


def recipe(tmp_path: Path, **train: Any) -> Recipe:
    """A recipe of the Ouro form, as large as the tests' folders."""
    norm = {"type": "rmsnorm", "eps": 1e-6}
    values = {
        "loopkit": 1,
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
    return recipe_of(values, tmp_path / "made.yaml")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_folder_comes_back_byte_for_byte(tmp_path: Path, shards: int, dtype: torch.dtype) -> None:
    folder = with_tokenizer(write(tmp_path / "ouro", tensors(dtype), shards=shards))
    import_folder(folder, RunFolder(tmp_path / "run"))
    made = export_run(tmp_path / "run", tmp_path / "out")
    assert made.unchanged
    assert made.notes == ()
    assert digests(tmp_path / "out") == digests(folder)


def test_mixed_types_odd_order_and_metadata_come_back(tmp_path: Path) -> None:
    weights = tensors()
    weights["model.norm.weight"] = weights["model.norm.weight"].float()
    folder = write(tmp_path / "ouro", weights)
    raw = (folder / "model.safetensors").read_bytes()
    header = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
    record = json.loads(header)
    text = json.dumps({"__metadata__": {"format": "pt", "note": "Grüße"}} | dict(sorted(record.items())), indent=1)
    other = text.encode() + b"   "
    (folder / "model.safetensors").write_bytes(len(other).to_bytes(8, "little") + other + raw[8 + len(header) :])
    import_folder(folder, RunFolder(tmp_path / "run"))
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged
    assert digests(tmp_path / "out") == digests(folder)


@pytest.mark.parametrize("head_too", [False, True])
def test_a_tied_head_comes_back_as_often_as_it_was_there(tmp_path: Path, head_too: bool) -> None:
    weights = tensors(tied=True)
    if head_too:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    folder = write(tmp_path / "ouro", weights, tie_word_embeddings=True)
    import_folder(folder, RunFolder(tmp_path / "run"))
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged
    assert digests(tmp_path / "out") == digests(folder)


def test_a_published_reference_comes_back(tmp_path: Path, golden_dir: Path) -> None:
    for name in ("hf", "hf_gqa"):
        folder = golden_dir / "ouro_tiny" / name
        import_folder(folder, RunFolder(tmp_path / name))
        assert export_run(tmp_path / name, tmp_path / f"{name}-out").unchanged
        assert digests(tmp_path / f"{name}-out") == digests(folder)


def test_trained_weights_go_out_in_the_form_that_they_came_in(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=2)
    import_folder(folder, RunFolder(tmp_path / "imported"))
    trained = fit(recipe(tmp_path, start_from=str(tmp_path / "imported")), tmp_path / "trained")
    first = fit(recipe(tmp_path, start_from=str(trained.folder.path), steps=1), tmp_path / "again")
    for run in (trained, first):  # the second has it from the first
        out = tmp_path / f"{run.folder.name}-out"
        made = export_run(run.folder.path, out)
        assert (made.form, made.unchanged, made.types) == ("ouro", False, ("bfloat16",))
        assert made.notes == ("the run's weights are float32; they are written as bfloat16",)
        same = {"config.json", "generation_config.json", "modeling_ouro.py", "model.safetensors.index.json"}
        assert {name: digests(out)[name] for name in same} == {name: digests(folder)[name] for name in same}
        ours, theirs = loaded(out), loaded(folder)
        assert {n: (v.dtype, v.shape) for n, v in ours.items()} == {n: (v.dtype, v.shape) for n, v in theirs.items()}
        assert not torch.equal(ours["model.norm.weight"], theirs["model.norm.weight"])
        master = load_file(run.checkpoint.path / WEIGHTS)
        q = master["core.blocks.1.attention.qkv.weight"][:16]
        assert torch.equal(ours["model.layers.1.self_attn.q_proj.weight"], q.bfloat16())

    import_folder(tmp_path / "again-out", RunFolder(tmp_path / "back"))
    model, _, _ = loopkit.load(tmp_path / "back")
    before, _, _ = loopkit.load(tmp_path / "again")
    batch = Batch.of(torch.arange(12).view(2, 6))
    with torch.no_grad():
        there, here = (m.run(batch, Loops.fixed(3)).logits(3) for m in (model, before))
    assert 0 < (there - here).abs().max() < 0.2  # what bf16 rounds away


def test_imported_weights_are_the_first_ones_of_training(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "imported"))
    checkpoint = RunFolder(tmp_path / "imported").checkpoint(0)
    for number, start in enumerate((tmp_path / "imported", checkpoint, checkpoint / WEIGHTS)):
        run = fit(recipe(tmp_path, start_from=str(start), steps=1, lr=1e-12), tmp_path / f"run{number}")
        weights = load_file(run.checkpoint.path / WEIGHTS)
        torch.testing.assert_close(weights["head.weight"], tensors()["lm_head.weight"].float())
        assert (run.folder.imported / "layout.json").is_file()


def test_a_type_that_was_asked_for(tmp_path: Path) -> None:
    folder = write(tmp_path / "ouro", shards=2)
    import_folder(folder, RunFolder(tmp_path / "run"))
    made = export_run(tmp_path / "run", tmp_path / "out", dtype="fp32")
    assert (made.types, made.unchanged) == (("float32",), False)
    assert "are bfloat16; they are written as float32" in made.notes[0]
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == CONFIG | {"dtype": "float32"}
    ours = loaded(tmp_path / "out")
    assert all(torch.equal(ours[name], value.float()) for name, value in tensors().items())
    import_folder(tmp_path / "out", RunFolder(tmp_path / "again"))  # index and files agree


def test_a_run_that_was_never_imported(tmp_path: Path) -> None:
    schedule = {"type": "lognormal", "mu": 1.7, "sigma": 0.4, "min": 1, "max": 16}
    trained = fit(recipe(tmp_path, schedule=schedule, steps=1), tmp_path / "trained")
    made = export_run(trained.folder.path, tmp_path / "out")
    assert (made.form, made.types) == ("ouro", ("float32",))
    assert "runs 6, the mean of training" in made.notes[0]
    assert "tokenizer 'bytes' has no Hugging Face form" in made.notes[1]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["total_ut_steps"], config["vocab_size"], config["pad_token_id"]) == (6, 300, 256)
    again = import_folder(tmp_path / "out", RunFolder(tmp_path / "again"), tokenizer="bytes")
    weights, back = load_file(trained.checkpoint.path / WEIGHTS), load_file(again.checkpoint.path / WEIGHTS)
    assert weights.keys() == back.keys()
    assert all(torch.equal(weights[name], back[name]) for name in weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block": {"placement": "post_sandwich"}}, "model.block.placement: 'post_sandwich' here, and ouro has 'pre_s"),
        ({"carry": "identity"}, "model.carry: 'identity' here, and ouro has 'readout'"),
        ({"injection": "add"}, "model.injection: 'add' here"),
        ({"gate": {"reads": "state"}}, "model.gate.reads: 'state' here, and ouro has 'readout'"),
        ({"prelude": 1}, "model.prelude.layers: 1 here"),
        ({"block": {"mlp": "gelu"}}, "model.block.mlp: 'gelu' here, and ouro has 'swiglu'"),
        ({"block": {"norm": {"eps": 1e-5}}}, "model.block.norm.eps: 1e-05 here"),
        ({"block": {"attention": {"qk_norm": "rmsnorm"}}}, "model.block.attention.qk_norm: .*ouro has None"),
        ({"position": {"pairing": "neighbours"}}, "model.position.pairing: 'neighbours' here"),
        ({"position": "learned"}, "model.position: 'learned' here, and ouro has 'rope'"),
        ({"embedding": {"scale": "sqrt_width"}}, "model.embedding.scale: 'sqrt_width' here"),
        ({"head": {"bias": True}}, "model.head.bias: True here"),
    ],
)
def test_what_the_form_cannot_say_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    from loopkit.components.tokenizer.bytes import Bytes
    from loopkit.interop.target import new_folder

    said = recipe(tmp_path)
    changed = recipe_of({**said.values, "model": _merged(dict(said.values["model"]), change)}, tmp_path / "made.yaml")
    with pytest.raises(NotRepresentable, match=message):
        new_folder(changed, dict(changed.values["model"]), Bytes(), "F32")


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _merged(below.get(key), value) for key, value in above.items()}


def test_a_changed_recipe_changes_the_configuration_and_says_so(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "imported"))
    other = recipe_of(
        {
            **(said := recipe(tmp_path, start_from=str(tmp_path / "imported"), steps=1)).values,
            "model": _merged(dict(said.values["model"]), {"position": {"base": 10000.0}}),
        },
        tmp_path / "made.yaml",
    )
    run = fit(other, tmp_path / "trained")
    made = export_run(run.folder.path, tmp_path / "out")
    assert "config.json is not the imported one: rope_theta changed" in made.notes[0]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config == CONFIG | {"rope_theta": 10000.0}


def test_shards_of_a_new_layout() -> None:
    theirs = {"a": (4, 8), "b": (2, 8), "c": (100,), "d": (1,)}
    headers = new(theirs, "F32", limit=200)
    assert [list(header.entries) for header in headers.values()] == [["a", "b"], ["c"], ["d"]]
    assert list(headers)[2] == "model-00003-of-00003.safetensors"
    assert list(new(theirs, "F32")) == ["model.safetensors"]


def test_nothing_is_overwritten_and_nothing_made_up(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="another folder with --out"):
        export_run(tmp_path / "run", tmp_path / "out")
    with pytest.raises(NoRun, match="there is no run"):
        export_run(tmp_path / "none", tmp_path / "new")
    with pytest.raises(CheckpointProblem, match="no checkpoint of step 7"):
        export_run(tmp_path / "run", tmp_path / "new", step=7)
    assert not (tmp_path / "new").exists()


def test_kept_files_that_were_changed(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))
    kept = tmp_path / "run" / "imported" / "folder" / "generation_config.json"
    kept.write_text("{}")
    with pytest.raises(ValueError, match=r"generation_config.json has been changed"):
        export_run(tmp_path / "run", tmp_path / "out")
    kept.unlink()
    with pytest.raises(ValueError, match=r"generation_config.json is missing"):
        export_run(tmp_path / "run", tmp_path / "out")
    (tmp_path / "run" / "imported" / "layout.json").write_text("{}")
    with pytest.raises(ValueError, match=r"layout.json is damaged"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_imported_run_is_no_run_to_resume(tmp_path: Path) -> None:
    import_folder(write(tmp_path / "ouro"), RunFolder(tmp_path / "run"))
    with pytest.raises(CheckpointProblem, match=r"nothing to resume; start a new run from it with train.start_from"):
        fit(load_recipe(tmp_path / "run" / "resolved.yaml"), tmp_path / "run", resume=True)


def test_starting_from_nothing_says_how_to_get_something(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist; name a run"):
        fit(recipe(tmp_path, start_from=str(tmp_path / "none")), tmp_path / "run")
    folder = write(tmp_path / "ouro")
    with pytest.raises(ValueError, match=r"is a published model, not a run; .*loopkit import"):
        fit(recipe(tmp_path, start_from=str(folder)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_past_inherits_nothing(tmp_path: Path) -> None:
    first = fit(recipe(tmp_path, steps=1), tmp_path / "first")
    second = fit(recipe(tmp_path, steps=1, start_from=str(first.folder.path)), tmp_path / "second")
    assert not second.folder.imported.exists()
    assert "imported" not in read_provenance(second.folder.provenance)


def test_a_run_with_components_of_its_own_file_goes_out(tmp_path: Path) -> None:
    """Its tokenizer is known to nobody but its recipe."""
    (tmp_path / "words.py").write_text(
        "from loopkit.components.tokenizer.bytes import Bytes\nfrom loopkit.registry import register\n\n\n"
        '@register("tokenizer", "own_words")\n'
        'class Words(Bytes):\n    """Bytes by another name."""\n\n    def __init__(self) -> None:\n        pass\n'
    )
    values = dict(recipe(tmp_path).values) | {"plugins": ["words.py"]}
    values["data"] = values["data"] | {"tokenizer": "own_words"}
    fit(recipe_of(values, tmp_path / "made.yaml"), tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "out").form == "ouro"
    _, tokenizer, _ = loopkit.load(tmp_path / "run")
    assert type(tokenizer).__name__ == "Words"
