"""An imported Nanbeige reproduces the numbers of the published implementation at one to four loops."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import loopkit
from loopkit.components.supervision import Terminal
from loopkit.inference import generate
from loopkit.interop import export_run, import_folder
from loopkit.interop.architectures.nanbeige import UNSUPPORTED
from loopkit.interop.config import ConfigError
from loopkit.interop.roundtrip import NotRepresentable
from loopkit.loop import IGNORE, PAD, Batch, Loops
from loopkit.model import LoopedModel
from loopkit.recipe import load_recipe
from loopkit.runs import RunFolder
from tests.training.runs import fit

FOLDERS = ("hf", "hf_tied", "hf_opts")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}
"""Relative to one plus the value; the golden numbers allow 5e-5 in fp32."""


@pytest.fixture(scope="module")
def golden(golden_dir: Path) -> Path:
    return golden_dir / "nanbeige_tiny"


@pytest.fixture(scope="module")
def runs(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each folder imported as it is, and with the other setting of ``skip_loop_final_norm``."""
    root = tmp_path_factory.mktemp("runs")
    for name in FOLDERS:
        for skip in (False, True):
            folder = copy_folder(golden / name, root / f"folder-{name}-{skip}", skip_loop_final_norm=skip)
            import_folder(folder, RunFolder(root / f"{name}-{skip}"))
    return root


def copy_folder(source: Path, target: Path, **changes: Any) -> Path:
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))
    return target


@cache
def load_model(run: Path, dtype: torch.dtype) -> LoopedModel:
    model, _, _ = loopkit.load(run)
    return model.to(dtype)


@cache
def expected_values(golden: Path, name: str, dtype: torch.dtype) -> dict[str, Tensor]:
    in_fp32 = load_file(golden / f"{name}.expected.safetensors")
    return in_fp32 if dtype == torch.float32 else in_fp32 | load_file(golden / f"{name}.expected_f64.safetensors")


def assert_close(result: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert result.shape == expected.shape
    error = ((result.to(expected.dtype) - expected).abs() / (1 + expected.abs())).max().item()
    assert error < TOLERANCE[dtype if expected.dtype == dtype else torch.float32], f"relative error {error:.1e}"


CASES = [
    (name, skip, dtype)
    for name in FOLDERS
    for skip in (False, True)
    for dtype in (torch.float32, torch.float64)
    if (name, skip) != ("hf_opts", True)
]


@pytest.mark.parametrize(("name", "skip", "dtype"), CASES)
@torch.no_grad()
def test_states_logits_and_losses_equal_the_reference(
    name: str, skip: bool, dtype: torch.dtype, golden: Path, runs: Path
) -> None:
    model, values = load_model(runs / f"{name}-{skip}", dtype), expected_values(golden, name, dtype)
    prefix = f"skip_{str(skip).lower()}"
    tokens = values["input_ids"]
    labels = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], IGNORE)], dim=1)
    loops = range(1, len(values[f"{prefix}/state_raw"]) + 1)
    t = model.run(Batch.of(tokens, labels), Loops.fixed(loops[-1]))
    assert_close(torch.stack([t.state(k) for k in loops]), values[f"{prefix}/state_raw"], dtype)
    assert_close(torch.stack([t.readout(k, at=k) for k in loops]), values[f"{prefix}/state_normed"], dtype)
    assert_close(torch.stack([t.logits(k, at=k) for k in loops]), values[f"{prefix}/logits_at_loops"], dtype)
    losses = [Terminal()(model.run(Batch.of(tokens, labels), Loops.fixed(k))).loss for k in loops]
    assert_close(torch.stack(losses), values[f"{prefix}/loss_shifted"], dtype)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", ["hf", "hf_tied"])
@pytest.mark.parametrize("cache", ["full", None])
def test_greedy_tokens_equal_the_reference(name: str, skip: bool, cache: str | None, golden: Path, runs: Path) -> None:
    """Alone and in a left-padded batch, with a cache and by recomputation."""
    model, values = load_model(runs / f"{name}-{skip}", torch.float32), expected_values(golden, name, torch.float32)
    prompts = [values[f"prompt{number}"].tolist() for number in range(3)]
    for loops in (1, 2, 3, 4):
        prefix = f"skip_{str(skip).lower()}/loops{loops}/greedy"
        expected = [tuple(values[f"{prefix}/prompt{number}"].tolist()) for number in range(3)]
        together = generate(model, prompts, depth=loops, max_tokens=12, cache=cache)
        assert [result.tokens for result in together] == expected
        alone = [generate(model, [prompt], depth=loops, max_tokens=12, cache=cache)[0].tokens for prompt in prompts]
        assert alone == expected


@pytest.mark.parametrize(("name", "skip", "dtype"), CASES)
@torch.no_grad()
def test_left_padding_equals_the_reference(name: str, skip: bool, dtype: torch.dtype, golden: Path, runs: Path) -> None:
    model, values = load_model(runs / f"{name}-{skip}", dtype), expected_values(golden, name, dtype)
    tokens, real = values["batch/input_ids"], values["batch/attention_mask"].bool()
    positions = (real.cumsum(dim=1) - 1).masked_fill(~real, PAD)
    batch = Batch(tokens, torch.full_like(tokens, IGNORE), positions, torch.arange(3))
    for loops in (1, 2) if name == "hf_opts" else (1, 2, 3, 4):
        last = model.run(batch, Loops.fixed(loops)).logits(loops)[:, -1]
        assert_close(last, values[f"skip_{str(skip).lower()}/loops{loops}/batch/last_logits"], dtype)


@torch.no_grad()
def test_cache_slots_hold_the_keys_of_each_loop(golden: Path, runs: Path) -> None:
    """The slot of the reference is layer + loop * layers."""
    from loopkit.loop import FullCache

    model, values = load_model(runs / "hf-False", torch.float32), expected_values(golden, "hf", torch.float32)
    tokens = values["input_ids"]
    cache = FullCache(len(tokens))
    model.run(Batch.of(tokens, torch.full_like(tokens, IGNORE)), Loops.fixed(2), cache=cache)
    slots = [cache._slots[loop, layer].filled() for loop in (1, 2) for layer in (0, 1)]
    keys = torch.stack([slot[0] for slot in slots])
    assert_close(keys, values["skip_false/loops2/cache_key"], torch.float32)
    assert_close(torch.stack([slot[1] for slot in slots]), values["skip_false/loops2/cache_value"], torch.float32)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", FOLDERS)
def test_export_writes_the_imported_tensors_and_keys(name: str, skip: bool, runs: Path, tmp_path: Path) -> None:
    source = runs / f"folder-{name}-{skip}"
    exported = export_run(runs / f"{name}-{skip}", tmp_path / "out")
    assert (exported.form, exported.unchanged) == ("nanbeige", True)
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (source, tmp_path / "out"))
    assert after == before
    tensors, expected = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", source))
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[key], expected[key]) for key in expected)


def test_the_norm_is_fed_back_unless_skipped(runs: Path) -> None:
    kept, skipped = (load_model(runs / f"hf-{skip}", torch.float32) for skip in (False, True))
    t = kept.run(Batch.of(torch.tensor([[1, 2, 3]])), Loops.fixed(2))
    assert torch.equal(t.carried(1), t.readout(1))
    t = skipped.run(Batch.of(torch.tensor([[1, 2, 3]])), Loops.fixed(2))
    assert torch.equal(t.carried(1), t.state(1))


REFUSED = {
    "double split": ({"enable_double_loop_split": True}, "loops over parts of the stack are not supported"),
    "hyper-connections": ({"enable_hyper_connection": True}, "hyper-connections are not supported"),
    "depth attention": ({"enable_depth_attention": True}, "attention over earlier layers"),
    "n-grams": ({"insert_ngram_layer_idx": [0]}, "n-gram embeddings"),
    "n-gram neighbours": ({"emb_neighbor_num": 2}, "n-gram embeddings"),
    "rotary scaling": (
        {"rope_parameters": "absent", "rope_scaling": {"type": "linear", "factor": 2.0}},
        "scaled rotary positions are not supported",
    ),
    "other loops": ({"loop_loss_weights": [0.5, 0.5]}, "runs 3 loops, but num_loops is 2, which other engines run"),
    "no loops": ({"num_loops": 0}, "num_loops is 0: it must be an integer of at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_variants_are_refused(case: str, golden: Path, tmp_path: Path) -> None:
    changes, message = REFUSED[case]
    folder = copy_folder(golden / "hf", tmp_path / "folder", **changes)
    with pytest.raises(ConfigError, match=message):
        import_folder(folder, RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_agreeing_loop_weights_are_accepted(golden: Path, tmp_path: Path) -> None:
    folder = copy_folder(golden / "hf", tmp_path / "folder", loop_loss_weights=[0.5])
    import_folder(folder, RunFolder(tmp_path / "run"))
    assert loopkit.load(tmp_path / "run")[2].train.schedule.build().bounds == (2, 2)


def test_trained_recipe_leaves_in_this_form(root: Path, tmp_path: Path) -> None:
    recipe = load_recipe(root / "recipes" / "nanbeige_mini.yaml", ["smoke"], ["train.steps=2", "evaluate.every=null"])
    fit(recipe, tmp_path / "run")
    exported = export_run(tmp_path / "run", tmp_path / "out", to="nanbeige")
    assert exported.form == "nanbeige"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    expected = {"num_loops": 2, "num_hidden_layers": 1, "skip_loop_final_norm": False, "head_dim": 16}
    assert {key: config[key] for key in expected} == expected
    assert set(UNSUPPORTED) - set(config) <= {"emb_neighbor_num", "emb_split_num"}
    import_folder(tmp_path / "out", RunFolder(tmp_path / "again"))
    before, after = (loopkit.load(tmp_path / name)[0].state_dict() for name in ("run", "again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_other_carries_and_norms_are_not_representable(root: Path, tmp_path: Path) -> None:
    overrides = ["train.steps=1", "evaluate.every=null", "model.carry=norm"]
    fit(load_recipe(root / "recipes" / "nanbeige_mini.yaml", ["smoke"], overrides), tmp_path / "run")
    with pytest.raises(NotRepresentable, match=r"nanbeige, which differs:\n  model.carry: 'norm' in the run, "):
        export_run(tmp_path / "run", tmp_path / "out", to="nanbeige")
    assert not (tmp_path / "out").exists()
