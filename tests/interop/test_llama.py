"""Llama models are imported as one loop, equal a handwritten forward pass, and are retrofitted to looped ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import Tensor

import loopkit
from loopkit.cli import main
from loopkit.interop import export_run, import_folder
from loopkit.interop.retrofit import Retrofit
from loopkit.interop.roundtrip import NotRepresentable
from loopkit.loop import Batch, Loops
from loopkit.runs import RunFolder
from tests.interop.folders import assert_same_model

WIDTH, HEADS, KEYS, SIZE, HIDDEN, LAYERS, VOCABULARY = 16, 4, 2, 4, 24, 5, 40
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": 64,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KEYS,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
}
TOKENS = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(3))


def weights(layers: int = LAYERS, vocabulary: int = VOCABULARY) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, WIDTH)}
    for i in range(layers):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (HEADS * SIZE, WIDTH),
            f"{layer}.self_attn.k_proj.weight": (KEYS * SIZE, WIDTH),
            f"{layer}.self_attn.v_proj.weight": (KEYS * SIZE, WIDTH),
            f"{layer}.self_attn.o_proj.weight": (WIDTH, HEADS * SIZE),
            f"{layer}.mlp.gate_proj.weight": (HIDDEN, WIDTH),
            f"{layer}.mlp.up_proj.weight": (HIDDEN, WIDTH),
            f"{layer}.mlp.down_proj.weight": (WIDTH, HIDDEN),
            f"{layer}.input_layernorm.weight": (WIDTH,),
            f"{layer}.post_attention_layernorm.weight": (WIDTH,),
        }
    shapes |= {"model.norm.weight": (WIDTH,), "lm_head.weight": (vocabulary, WIDTH)}
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(shape, generator=generator) * 0.4 + (1.0 if "norm" in name else 0.0)
        for name, shape in shapes.items()
    }


def write(folder: Path, layers: int = LAYERS, vocabulary: int = VOCABULARY) -> Path:
    """Write a published folder of the form."""
    folder.mkdir()
    config = CONFIG | {"num_hidden_layers": layers, "vocab_size": vocabulary}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(weights(layers, vocabulary), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "llama")


def reference_logits(layers: list[int]) -> Tensor:
    """Compute the published forward pass over some of the layers, in fp64."""
    w = {name: value.double() for name, value in weights().items()}

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain

    def rotate(x: Tensor) -> Tensor:
        frequency = 10000.0 ** -(torch.arange(0, SIZE, 2).double() / SIZE)
        angle = torch.arange(x.shape[2]).double()[:, None] * frequency
        cos, sin = (torch.cat([part, part], -1) for part in (angle.cos(), angle.sin()))
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    x = w["model.embed_tokens.weight"][TOKENS]
    length = TOKENS.shape[1]
    mask = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)
    for i in layers:
        layer = f"model.layers.{i}"
        y = norm(x, w[f"{layer}.input_layernorm.weight"])
        q, k, v = (
            (y @ w[f"{layer}.self_attn.{letter}_proj.weight"].T).unflatten(-1, (-1, SIZE)).transpose(1, 2)
            for letter in "qkv"
        )
        k, v = (part.repeat_interleave(HEADS // KEYS, dim=1) for part in (rotate(k), v))
        attended = (rotate(q) @ k.transpose(-1, -2) / SIZE**0.5 + mask).softmax(-1) @ v
        x = x + attended.transpose(1, 2).flatten(2) @ w[f"{layer}.self_attn.o_proj.weight"].T
        y = norm(x, w[f"{layer}.post_attention_layernorm.weight"])
        hidden = F.silu(y @ w[f"{layer}.mlp.gate_proj.weight"].T) * (y @ w[f"{layer}.mlp.up_proj.weight"].T)
        x = x + hidden @ w[f"{layer}.mlp.down_proj.weight"].T
    return norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T


@torch.no_grad()
def test_a_llama_is_one_loop_of_its_layers(folder: Path, tmp_path: Path) -> None:
    result = import_folder(folder, RunFolder(tmp_path / "run"))
    assert (result.form, result.loops, result.notes[:-1]) == ("llama", 1, ())
    model, _, _ = loopkit.load(tmp_path / "run")
    logits = model.to(torch.float64).run(Batch.of(TOKENS), Loops.fixed(1)).logits(1)
    torch.testing.assert_close(logits, reference_logits(list(range(LAYERS))), rtol=1e-9, atol=1e-9)
    assert export_run(tmp_path / "run", tmp_path / "out").unchanged
    assert_same_model(tmp_path / "out", folder)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("prelude=2,core=2,coda=1", [0, 1, 2, 3, 4]),
        ("prelude=1,core=2,coda=1", [0, 2, 3, 4]),  # drops the layer after the prelude
        ("prelude=0-1,core=2-2,coda=4-4", [0, 1, 2, 4]),
        ("prelude=0,core=5,coda=0", [0, 1, 2, 3, 4]),
    ],
)
@torch.no_grad()
def test_a_retrofitted_loop_applies_layers_in_order(folder: Path, tmp_path: Path, text: str, layers: list[int]) -> None:
    result = import_folder(folder, RunFolder(tmp_path / "run"), retrofit=text)
    model, _, recipe = loopkit.load(tmp_path / "run")
    model.to(torch.float64)
    t = model.run(Batch.of(TOKENS), Loops.fixed(2))
    torch.testing.assert_close(t.logits(1), reference_logits(layers), rtol=1e-9, atol=1e-9)
    # before training the injection passes only the input, so a second loop repeats the first
    torch.testing.assert_close(t.logits(2), t.logits(1))
    assert recipe.model.injection.name == "concat"
    assert result.loops == 4
    dropped = sorted(set(range(LAYERS)) - set(layers))
    assert (f"layers {dropped[0]} are dropped" if dropped else "no layer is dropped") in result.notes[0]
    with pytest.raises(NotRepresentable, match="injection"):
        export_run(tmp_path / "run", tmp_path / "out", to="llama")
    assert export_run(tmp_path / "run", tmp_path / "out").form == "loopkit"


def test_counts_and_ranges_are_parsed() -> None:
    chosen = Retrofit.parse("prelude=4,core=8,coda=4", 22)
    assert (chosen.prelude, chosen.core, chosen.coda) == (range(4), range(10, 18), range(18, 22))
    assert Retrofit.parse("prelude=0-3,core=10-17,coda=18-21", 22) == chosen


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("prelude=4,core=8", "coda is missing"),
        ("prelude=4,core=8,coda=x", "'coda=x' is not a stage with its layers"),
        ("prelude=4,core=8,coda=1,core=2", "'core=2' is not a stage"),
        ("prelude=1,core=0,coda=1", "the core needs a layer"),
        ("prelude=3,core=2,coda=1", "layers must rise from 0 to 4, each used once"),
        ("prelude=0-1,core=1-2,coda=4-4", "layers must rise from 0 to 4, each used once"),
        ("prelude=0-1,core=2-3,coda=4-9", "layers must rise from 0 to 4"),
        ("prelude=1,core=9,coda=1", "layers must rise from 0 to 4"),
    ],
)
def test_invalid_layers_are_refused(folder: Path, tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        import_folder(folder, RunFolder(tmp_path / "run"), retrofit=text)
    assert not (tmp_path / "run").exists()
    command = ["import", str(folder), "--out", str(tmp_path / "run"), "--retrofit", text]
    assert CliRunner().invoke(main, command).exit_code == 2


def test_a_looped_model_cannot_be_retrofitted(golden_dir: Path, tmp_path: Path) -> None:
    for name in ("huginn_tiny/hf", "ouro_tiny/hf"):
        with pytest.raises(ValueError, match="is looped already"):
            import_folder(golden_dir / name, RunFolder(tmp_path / "run"), retrofit="prelude=1,core=1,coda=1")
