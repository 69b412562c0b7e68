"""What decoders of the Llama family have in common on both sides: their configuration, and the tensors of a layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from loopkit.interop.config import Config
from loopkit.interop.weight_map import DerivedTensor, Link, Links, Shape, same

PLAIN_ROPE = ("default", None)


def read_decoder(config: Config, placement: str, **parts: Any) -> dict[str, Any]:
    """A model section from the keys that all of them have.

    Args:
        config: Their configuration; what would change numbers and cannot be said is refused.
        placement: Where the norms of a layer sit.
        parts: The rest of the section, by kind.
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
    config.only("hidden_act", "silu", "swish", why="the gate of its MLP bends otherwise than SiLU")
    config.only("attention_bias", False, why="attention has biases, which are not supported")
    config.only("mlp_bias", False, why="the MLP has biases, which are not supported")
    _full_attention(config, layers)
    return {
        "width": width,
        "vocabulary": config.count("vocab_size"),
        "embedding": {"scale": 1.0},
        "position": {"type": "rope", "base": _rope_base(config), "pairing": "halves"},
        "block": {
            "type": "transformer",
            "attention": attention,
            "mlp": {"type": "swiglu", "hidden": config.count("intermediate_size")},
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
    """The keys that all of them have, from a model section."""
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


def decoder_links(model: Mapping[str, Any], norms: Mapping[str, str], *others: Link) -> Links:
    """Every tensor: table, layers, last norm, and the head where it has one of its own.

    Args:
        model: The resolved model section.
        norms: Their name of each norm of a layer to ours.
        others: What this form has besides.
    """
    width, vocabulary = model["width"], model["vocabulary"]
    found = [same("model.embed_tokens.weight", (vocabulary, width), "embedding.tokens.weight")]
    for i in range(model["core"]["layers"]):
        found += _layer(model, f"model.layers.{i}", f"core.blocks.{i}", norms)
    found += [same("model.norm.weight", (width,), "readout.norm.weight"), *others]
    if model["head"]["tied"]:
        return Links(tuple(found), {"lm_head.weight": "model.embed_tokens.weight"})
    return Links((*found, same("lm_head.weight", (vocabulary, width), "head.weight")), {})


ROTARY = re.compile(r"model\.(?:layers\.\d+\.self_attn\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)")
"""Buffers of the rotation, which older folders store."""


def rotary_buffer(name: str, shape: Shape, model: Mapping[str, Any]) -> DerivedTensor | None:
    """The buffer of the rotation that a stored tensor is; None where its name is not that of one.

    inv_freq: ``[size / 2]``;  cos_cached, sin_cached: ``[..., length, size]``, both halves alike
    """
    match = ROTARY.fullmatch(name)
    if match is None:
        return None
    attention = model["block"]["attention"]
    size = attention["head_size"] or model["width"] // attention["heads"]
    frequency = 1.0 / model["position"]["base"] ** (np.arange(0, size, 2, dtype=np.float64) / size)
    if match[1] == "inv_freq":
        return DerivedTensor((size // 2,), lambda: frequency.astype(np.float32))
    length = shape[-2] if len(shape) > 1 else 1

    def make() -> np.ndarray:
        angle = np.arange(length, dtype=np.float64)[:, None] * np.concatenate([frequency, frequency])
        return (np.cos(angle) if match[1] == "cos_cached" else np.sin(angle)).astype(np.float32)

    return DerivedTensor((*(1 for _ in shape[:-2]), length, size), make)


def _layer(model: Mapping[str, Any], theirs: str, ours: str, norms: Mapping[str, str]) -> list[Link]:
    width, attention = model["width"], model["block"]["attention"]
    heads = attention["heads"]
    size = attention["head_size"] or width // heads
    queries, keys = heads * size, (attention["kv_heads"] or heads) * size
    mlp = model["block"]["mlp"]
    inside = mlp["hidden"] or round(mlp["ratio"] * width)
    projections = [("q", queries), ("k", keys), ("v", keys)]
    fused = tuple((f"{theirs}.self_attn.{letter}_proj.weight", (rows, width)) for letter, rows in projections)
    return [
        Link(fused, (f"{ours}.attention.qkv.weight",)),
        same(f"{theirs}.self_attn.o_proj.weight", (width, queries), f"{ours}.attention.out.weight"),
        same(f"{theirs}.mlp.gate_proj.weight", (inside, width), f"{ours}.mlp.gate.weight"),
        same(f"{theirs}.mlp.up_proj.weight", (inside, width), f"{ours}.mlp.up.weight"),
        same(f"{theirs}.mlp.down_proj.weight", (width, inside), f"{ours}.mlp.out.weight"),
        *(same(f"{theirs}.{name}.weight", (width,), f"{ours}.{norm}.weight") for name, norm in norms.items()),
    ]


def _rope_base(config: Config) -> float:
    """Base of the rotation, where it is plain; newer configurations put it into ``rope_parameters``."""
    base = config.number("rope_theta", 10000.0)
    for key in ("rope_scaling", "rope_parameters"):
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, dict) or value.get("rope_type", value.get("type")) not in PLAIN_ROPE:
            config.refuse(f"{key} is {value!r}: scaled rotary positions are not supported")
        elif unknown := set(value) - {"rope_type", "type", "rope_theta"}:
            config.refuse(f"{key} has {', '.join(sorted(unknown))}, which loopkit does not know")
        else:
            base = float(value.get("rope_theta", base))
    return base


def _full_attention(config: Config, layers: int) -> None:
    """Refuse windows; a width of window that is switched off changes nothing."""
    switched_off = config.get("use_sliding_window") is False
    config.only("use_sliding_window", False, why="attention within a sliding window is not supported")
    if not switched_off:
        config.only("sliding_window", why="attention within a sliding window is not supported")
    config.pass_over("sliding_window")
    config.only("layer_types", ["full_attention"] * layers, why="every layer must attend to all that came before")
