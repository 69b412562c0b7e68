"""Weights in a file: shared tensors once, and clear errors if shapes differ."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from loopkit.model import WeightsError, load_weights, save_weights
from loopkit.recipe.format import HeadConfig
from tests.model.tiny import tiny


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.safetensors"


def test_shared_tensors_are_saved_once(path: Path) -> None:
    model = tiny(readout={"type": "alpha", "s_ref": "ema"})
    save_weights(model, path)
    stored = load_file(path)
    assert "head.weight" not in stored
    assert "readout.scales.0.count" in stored
    assert sum(value.numel() for value in stored.values()) == sum(p.numel() for p in model.parameters()) + 2
    other = tiny(readout={"type": "alpha", "s_ref": "ema"}, seed=9)
    assert load_weights(other, path) == []
    assert other.head.weight is other.embedding.tokens.weight
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_shared_tensor_loads_under_any_name(path: Path) -> None:
    model = tiny(seed=1)
    stored = {name: value.clone() for name, value in model.state_dict().items()}
    del stored["embedding.tokens.weight"]
    save_file(stored, path)
    other = tiny(seed=2)
    load_weights(other, path)
    assert torch.equal(other.embedding.tokens.weight, model.embedding.tokens.weight)


def test_failed_load_names_every_mismatch(path: Path) -> None:
    stored = {name: value.clone() for name, value in tiny(seed=1).state_dict().items()}
    del stored["core.blocks.0.mlp.up.weight"]
    stored["core.blocks.1.mlp.up.weight"] = torch.zeros(3, 16)
    stored["gate.linear.bias"] = torch.zeros(1)
    stored["head.weight"] = stored["head.weight"] + 1
    save_file(stored, path)
    model = tiny(seed=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(WeightsError) as caught:
        load_weights(model, path)
    text = str(caught.value)
    assert str(path) in text
    assert "missing in the file: core.blocks.0.mlp.up.weight" in text
    assert "unknown to the model: gate.linear.bias" in text
    assert "core.blocks.1.mlp.up.weight: the file has [3, 16], the model [32, 16]" in text
    assert "embedding.tokens.weight and head.weight: shared in the model, different in the file" in text
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_non_strict_load_still_checks_shapes(path: Path) -> None:
    save_weights(tiny(seed=1), path)
    model = tiny(seed=2, gate="linear")
    absent = load_weights(model, path, strict=False)
    assert absent == ["missing in the file: gate.linear.weight", "missing in the file: gate.linear.bias"]
    assert torch.equal(model.embedding.tokens.weight, tiny(seed=1).embedding.tokens.weight)
    with pytest.raises(WeightsError, match="the file has"):
        load_weights(
            tiny(core=2, block={"type": "transformer", "attention": {"heads": 4, "kv_heads": 1}}), path, strict=False
        )


def test_loading_keeps_the_model_precision(path: Path) -> None:
    save_weights(tiny(seed=1), path)
    model = tiny(seed=2, dtype=torch.float64)
    load_weights(model, path)
    assert model.head.weight.dtype == torch.float64
    assert torch.equal(model.head.weight.float(), tiny(seed=1).head.weight)


def test_tied_weights_do_not_load_into_untied_model(path: Path) -> None:
    save_weights(tiny(), path)
    with pytest.raises(WeightsError, match=r"missing in the file: head\.weight"):
        load_weights(tiny(head=HeadConfig(tied=False)), path)


@pytest.mark.parametrize("content", [None, b"", b"not a safetensors file at all"])
def test_unreadable_weight_files_are_refused(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        load_weights(tiny(), path)
