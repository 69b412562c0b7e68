"""What decoders of the Llama family share: the keys of their configuration, and the tensors of a layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from loopkit.interop.config import Config
from loopkit.interop.weight_map import Buffer, Shape, TensorGroup, WeightMap, renamed

PLAIN_ROPE = ("default", None)


def read_decoder(config: Config, placement: str, *, biases: bool = False, **parts: Any) -> dict[str, Any]:
    """Read the keys that all of them have as a model section.

    Args:
        config: Their configuration; values that change numbers and that no recipe can represent are rejected.
        placement: Placement of the norms of a layer.
        biases: Whether the form has biases of all matrices and norms of queries and keys.
        parts: Further components of the section, by kind.
    """
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    head_size = config.count("head_dim", max(width // heads, 1))
    layers = config.count("num_hidden_layers")
    norm = {"type": "rmsnorm", "eps": config.number("rms_norm_eps", 1e-6)}
    attention: dict[str, Any] = {
        "type": "causal",
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", heads),
        "dropout": config.number("attention_dropout", 0.0),
    }
    if head_size * heads != width:
        attention["head_size"] = head_size
    config.require("hidden_act", "silu", "swish", why="the gate of the MLP must use SiLU")
    mlp: dict[str, Any] = {"type": "swiglu", "hidden": config.count("intermediate_size")}
    if biases:
        if config.flag("attention_bias", False):
            attention |= {"qkv_bias": True, "out_bias": True}
        if config.flag("mlp_bias", False):
            mlp["bias"] = True
        if config.flag("qk_layernorm", False):
            attention["qk_norm"] = norm
    else:
        config.require("attention_bias", False, why="biases of attention are not supported")
        config.require("mlp_bias", False, why="biases of the MLP are not supported")
    _full_attention(config, layers)
    return {
        "width": width,
        "vocabulary": config.count("vocab_size"),
        "embedding": {"scale": 1.0},
        "position": {"type": "rope", "base": _rope_base(config), "pairing": "halves"},
        "block": {
            "type": "transformer",
            "attention": attention,
            "mlp": mlp,
            "norm": norm,
            "placement": placement,
        },
        "core": layers,
        "start": "embedding",
        "injection": "none",
        "readout": {"type": "norm", "norm": norm},
        "head": {"tied": config.flag("tie_word_embeddings", False)},
    } | parts


def write_decoder(model: Mapping[str, Any], *, length: int) -> dict[str, Any]:
    """Write a model section as the keys that all of them have."""
    block, position, width = model["block"], model["position"], model["width"]
    attention, mlp = block.get("attention", {}), block.get("mlp", {})
    heads = attention.get("heads", 1)
    config = {
        "attention_dropout": attention.get("dropout", 0.0),
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": mlp.get("hidden") or round(mlp.get("ratio", 4.0) * width),
        "max_position_embeddings": length,
        "num_attention_heads": heads,
        "num_hidden_layers": model["core"].get("layers", 1),
        "num_key_value_heads": attention.get("kv_heads") or heads,
        "rms_norm_eps": model["readout"].get("norm", {}).get("eps", 1e-6),
        "rope_scaling": None,
        "rope_theta": position.get("base", 10000.0),
        "tie_word_embeddings": model["head"]["tied"],
        "vocab_size": model["vocabulary"],
    }
    if (size := attention.get("head_size")) is not None and size * heads != width:
        config["head_dim"] = size
    return config


def decoder_weight_map(model: Mapping[str, Any], norms: Mapping[str, str], *extra: TensorGroup) -> WeightMap:
    """Map every tensor: token table, layers, last norm, and the head if it is not tied.

    Args:
        model: The resolved model section.
        norms: Published name of each norm of a layer to the native one.
        extra: Further tensors of the form.
    """
    width, vocabulary = model["width"], model["vocabulary"]
    groups = [renamed("model.embed_tokens.weight", (vocabulary, width), "embedding.tokens.weight")]
    for i in range(model["core"]["layers"]):
        groups += _layer(model, f"model.layers.{i}", f"core.blocks.{i}", norms)
    groups += [renamed("model.norm.weight", (width,), "readout.norm.weight"), *extra]
    if model["head"]["tied"]:
        return WeightMap(tuple(groups), {"lm_head.weight": "model.embed_tokens.weight"})
    return WeightMap((*groups, renamed("lm_head.weight", (vocabulary, width), "head.weight")))


ROTARY = re.compile(r"model\.(?:layers\.\d+\.self_attn\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)")
"""Buffers of the rotary embedding, which older folders store."""


def rotary_buffer(name: str, shape: Shape, model: Mapping[str, Any]) -> Buffer | None:
    """Return the buffer of the rotary embedding that a stored tensor is; None for other names.

    inv_freq: ``[size / 2]``;  cos_cached, sin_cached: ``[..., length, size]``, both halves equal
    """
    match = ROTARY.fullmatch(name)
    if match is None:
        return None
    attention = model["block"]["attention"]
    size = attention["head_size"] or model["width"] // attention["heads"]
    frequency = 1.0 / model["position"]["base"] ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
    if match[1] == "inv_freq":
        return Buffer((size // 2,), lambda: frequency.float())
    length = shape[-2] if len(shape) > 1 else 1

    def compute() -> Tensor:
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency.repeat(2)
        values = angle.cos() if match[1] == "cos_cached" else angle.sin()
        return values.float().expand(shape).contiguous()

    return Buffer((*(1 for _ in shape[:-2]), length, size), compute)


def _layer(model: Mapping[str, Any], published: str, native: str, norms: Mapping[str, str]) -> list[TensorGroup]:
    width, attention = model["width"], model["block"]["attention"]
    heads = attention["heads"]
    size = attention["head_size"] or width // heads
    queries, keys = heads * size, (attention["kv_heads"] or heads) * size
    mlp = model["block"]["mlp"]
    hidden = mlp["hidden"] or round(mlp["ratio"] * width)
    projections = [("q", queries), ("k", keys), ("v", keys)]
    fused = tuple((f"{published}.self_attn.{letter}_proj.weight", (rows, width)) for letter, rows in projections)
    matrices = {
        "self_attn.o_proj": ("attention.out", (width, queries), attention["out_bias"]),
        "mlp.gate_proj": ("mlp.gate", (hidden, width), mlp["bias"]),
        "mlp.up_proj": ("mlp.up", (hidden, width), mlp["bias"]),
        "mlp.down_proj": ("mlp.out", (width, hidden), mlp["bias"]),
    }
    groups = [TensorGroup(fused, (f"{native}.attention.qkv.weight",))]
    if attention["qkv_bias"]:
        parts = tuple((f"{published}.self_attn.{letter}_proj.bias", (rows,)) for letter, rows in projections)
        groups.append(TensorGroup(parts, (f"{native}.attention.qkv.bias",)))
    for name, (own, shape, bias) in matrices.items():
        groups.append(renamed(f"{published}.{name}.weight", shape, f"{native}.{own}.weight"))
        if bias:
            groups.append(renamed(f"{published}.{name}.bias", shape[:1], f"{native}.{own}.bias"))
    if attention["qk_norm"] is not None:
        for letter in "qk":
            own = f"{native}.attention.norm_{letter}.weight"
            groups.append(renamed(f"{published}.self_attn.{letter}_layernorm.weight", (size,), own))
    for name, norm in norms.items():
        groups.append(renamed(f"{published}.{name}.weight", (width,), f"{native}.{norm}.weight"))
    return groups


def _rope_base(config: Config) -> float:
    """Read the base of an unscaled rotary embedding; newer configurations have it in ``rope_parameters``."""
    base = config.number("rope_theta", 10000.0)
    for key in ("rope_scaling", "rope_parameters"):
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, dict) or value.get("rope_type", value.get("type")) not in PLAIN_ROPE:
            config.reject(f"{key} is {value!r}: scaled rotary positions are not supported")
        elif unknown := set(value) - {"rope_type", "type", "rope_theta"}:
            config.reject(f"{key} has {', '.join(sorted(unknown))}, which loopkit does not support")
        else:
            base = float(value.get("rope_theta", base))
    return base


def _full_attention(config: Config, layers: int) -> None:
    """Reject sliding windows; the width of a window that is switched off is ignored."""
    switched_off = config.get("use_sliding_window") is False
    config.require("use_sliding_window", False, why="sliding-window attention is not supported")
    if not switched_off:
        config.require("sliding_window", why="sliding-window attention is not supported")
    config.ignore_keys("sliding_window")
    config.require("layer_types", ["full_attention"] * layers, why="every layer must have full attention")
