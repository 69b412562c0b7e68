"""Published folders for tests: a random tiny Ouro, in one file or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WIDTH, HIDDEN, LAYERS, HEADS, KEYS, SIZE, VOCABULARY = 16, 24, 2, 4, 2, 4, 300

CONFIG: dict[str, Any] = {
    "architectures": ["OuroForCausalLM"],
    "attention_dropout": 0.0,
    "auto_map": {"AutoModelForCausalLM": "modeling_ouro.OuroForCausalLM"},
    "dtype": "bfloat16",
    "early_exit_threshold": 1.0,
    "hidden_act": "silu",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "layer_types": ["full_attention"] * LAYERS,
    "max_position_embeddings": 64,
    "model_type": "ouro",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KEYS,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "total_ut_steps": 3,
    "use_sliding_window": False,
    "vocab_size": VOCABULARY,
}


def tensors(dtype: torch.dtype = torch.bfloat16, *, tied: bool = False) -> dict[str, Tensor]:
    """Weights under the published names."""
    generator = torch.Generator().manual_seed(1)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (HEADS * SIZE, WIDTH),
            f"{layer}.self_attn.k_proj.weight": (KEYS * SIZE, WIDTH),
            f"{layer}.self_attn.v_proj.weight": (KEYS * SIZE, WIDTH),
            f"{layer}.self_attn.o_proj.weight": (WIDTH, HEADS * SIZE),
            f"{layer}.mlp.gate_proj.weight": (HIDDEN, WIDTH),
            f"{layer}.mlp.up_proj.weight": (HIDDEN, WIDTH),
            f"{layer}.mlp.down_proj.weight": (WIDTH, HIDDEN),
        }
        shapes |= {
            f"{layer}.{name}.weight": (WIDTH,)
            for name in (
                "input_layernorm",
                "input_layernorm_2",
                "post_attention_layernorm",
                "post_attention_layernorm_2",
            )
        }
    shapes |= {"model.norm.weight": (WIDTH,)}
    shapes |= {"model.early_exit_gate.weight": (1, WIDTH), "model.early_exit_gate.bias": (1,)}
    shapes |= {} if tied else {"lm_head.weight": (VOCABULARY, WIDTH)}
    return {
        name: (torch.randn(shape, generator=generator) * 0.3 + (1.0 if "norm" in name else 0.0)).to(dtype)
        for name, shape in shapes.items()
    }


def write(folder: Path, weights: dict[str, Tensor] | None = None, *, shards: int = 1, **config: Any) -> Path:
    """Write a published folder, with a few files that loopkit does not read."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = tensors() if weights is None else weights
    (folder / "config.json").write_text(json.dumps(CONFIG | config, indent=2) + "\n")
    (folder / "generation_config.json").write_text('{"bos_token_id": 1}\n')
    (folder / "modeling_ouro.py").write_text("raise SystemExit('a published file has been executed')\n")
    names = list(weights)
    parts = [names[i::shards] for i in range(shards)]
    files = [f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(1, shards + 1)]
    files = ["model.safetensors"] if shards == 1 else files
    for file, part in zip(files, parts, strict=True):
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
    if shards > 1:
        where = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        total = sum(value.nbytes for value in weights.values())
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return folder


def with_tokenizer(folder: Path) -> Path:
    """Add a tokenizer of single characters to a folder."""
    import tokenizers

    vocabulary = {chr(32 + i): i for i in range(95)} | {"\n": 95, "<unk>": 96, "<|im_end|>": 97}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.add_special_tokens(["<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}')
    return folder


def load_tensors(folder: Path) -> dict[str, Tensor]:
    """Load every tensor of a folder."""
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


def assert_same_model(exported: Path, published: Path) -> None:
    """Check that two folders have bitwise equal tensors, an equal configuration and the same further files."""
    result, expected = load_tensors(exported), load_tensors(published)
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        assert result[name].dtype == value.dtype, name
        assert torch.equal(result[name], value), name
    assert _values(exported / "config.json") == _values(published / "config.json")
    copied = {file.name for file in published.iterdir() if ".safetensors" not in file.name}
    assert {file.name for file in exported.iterdir() if ".safetensors" not in file.name} == copied
    for name in copied - {"config.json"}:
        assert (exported / name).read_bytes() == (published / name).read_bytes(), name


def _values(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values
