"""Huginn's checkpoints are imported, reproduce the reference's numbers, and are exported unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import loopkit
from loopkit.interop import export_run, import_folder
from loopkit.interop.config import ConfigError
from loopkit.interop.published import PublishedError
from loopkit.loop import Batch, Loops
from loopkit.runs import RunFolder
from tests.interop.folders import assert_same_model


@pytest.fixture(scope="module")
def golden(golden_dir: Path) -> Path:
    return golden_dir / "huginn_tiny"


@pytest.fixture(scope="module")
def imported(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "huginn"
    result = import_folder(golden / "hf", RunFolder(run))
    assert (result.form, result.loops, result.tokenizer) == ("huginn", 4, "numbers")
    weights = load_file(golden / "hf" / "model.safetensors")
    assert result.parameters == sum(value.numel() for name, value in weights.items() if name != "freqs_cis")
    return run


def write_changed(golden: Path, to: Path, tensors: dict[str, Tensor] | None = None, **config: Any) -> Path:
    """Copy the reference's folder with other values."""
    shutil.copytree(golden / "hf", to)
    (to / "config.json").write_text(json.dumps(json.loads((to / "config.json").read_text()) | config))
    if tensors:
        save_file(load_file(to / "model.safetensors") | tensors, to / "model.safetensors", metadata={"format": "pt"})
    return to


@torch.no_grad()
def test_logits_equal_the_reference(golden: Path, imported: Path) -> None:
    expected = load_file(golden / "expected_f64.safetensors")
    model, _, recipe = loopkit.load(imported)
    model.to(torch.float64)
    batch = Batch.of(expected["input_ids"])
    for steps in (1, 4):
        t = model.run(batch, Loops.fixed(steps), start=expected["init_state"])
        torch.testing.assert_close(t.logits(steps), expected[f"given_state/steps{steps}/logits"], rtol=1e-9, atol=1e-9)
    zeros = torch.zeros_like(expected["init_state"])
    t = model.run(batch, Loops.fixed(8), start=zeros)
    torch.testing.assert_close(t.logits(8), expected["zero_state/steps8/logits"], rtol=1e-9, atol=1e-9)
    assert model.coda.norm is model.readout.norm
    assert recipe.model.start.options == {"std": pytest.approx(0.4**0.5), "truncate": 3.0}


def test_import_then_export_is_the_identity(golden: Path, imported: Path, tmp_path: Path) -> None:
    result = export_run(imported, tmp_path / "out")
    assert (result.form, result.unchanged) == ("huginn", True)
    assert_same_model(tmp_path / "out", golden / "hf")


def test_a_missing_rotary_table_is_computed(golden: Path, imported: Path, tmp_path: Path) -> None:
    shutil.copytree(imported, tmp_path / "run")
    (tmp_path / "run" / "imported" / "tables.safetensors").unlink()
    export_run(tmp_path / "run", tmp_path / "out", dtype="fp32")
    expected, result = load_file(golden / "hf/model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    assert expected.keys() == result.keys()
    for name, value in expected.items():
        torch.testing.assert_close(result[name], value, rtol=0, atol=1e-5 if name == "freqs_cis" else 0.0)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"injection_type": "gate"}, "injection_type is 'gate': only a linear injection is supported"),
        ({"state_init": "zero"}, "state_init is 'zero': only a random first state is supported"),
        ({"block_class_name": "TransformerPreNormBlock"}, "only sandwich blocks are supported"),
        ({"test_time_noise": 0.5}, "noise between loops is not supported"),
        ({"num_key_value_heads": 2}, "its qk_bias needs as many key heads as query heads"),
        ({"init_values": {"embed_scale": 1.0, "std": 0.1}}, "it must be the square root of n_embd"),
        ({"init_values": {"embed_scale": 32**0.5, "std": 0.1}}, r"it must be the square root of 2 / \(5 n_embd\)"),
        ({"step_embedding": True}, "step_embedding is True: loopkit does not read this key"),
    ],
)
def test_unsupported_configurations_are_refused(golden: Path, tmp_path: Path, config: dict, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        import_folder(write_changed(golden, tmp_path / "hf", **config), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_inconsistent_rotary_table_is_refused(golden: Path, tmp_path: Path) -> None:
    folder = write_changed(golden, tmp_path / "hf", rope_base=10000)
    with pytest.raises(PublishedError, match="its numbers are not those that config"):
        import_folder(folder, RunFolder(tmp_path / "run"))
    folder = write_changed(golden, tmp_path / "short", {"freqs_cis": torch.zeros(1, 5, 1, 4, 2)})
    with pytest.raises(PublishedError, match=r"freqs_cis: its shape is \[1, 5, 1, 4, 2\]; config.json implies"):
        import_folder(folder, RunFolder(tmp_path / "run"))
