"""Ouro: pre-sandwich blocks, the normed state fed back and read by head and gate.

x = embedding;  per loop, for each layer: x = x + N2(attention(N1 x)), x = x + N4(mlp(N3 x));  then x = N(x), which
feeds the head, the gate and the next loop.

Paper: arXiv:2510.25741. The published modelling file is what the names come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.interop.architectures import Form, Reading
from loopkit.interop.config import Config
from loopkit.interop.links import Link, Links, same

PLAIN_ROPE = ("default", None)


class Ouro(Form):
    """``OuroForCausalLM``."""

    name = "ouro"
    model_type = "ouro"
    classes = ("OuroForCausalLM",)

    def read(self, config: Config) -> Reading:
        width, heads = config.count("hidden_size"), config.count("num_attention_heads")
        head_size = config.count("head_dim", max(width // heads, 1))
        layers, loops = config.count("num_hidden_layers"), config.count("total_ut_steps", 4)
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
        config.only("attention_bias", False, why="attention has biases, which the published Ouro does not")
        config.only("mlp_bias", False, why="the MLP has biases, which the published Ouro does not")
        full_attention(config, layers)
        config.pass_over("early_exit_threshold", "max_window_layers")
        return Reading(
            model={
                "width": width,
                "vocabulary": config.count("vocab_size"),
                "embedding": {"scale": 1.0},
                "position": {"type": "rope", "base": rope_base(config), "pairing": "halves"},
                "block": {
                    "type": "transformer",
                    "attention": attention,
                    "mlp": {"type": "swiglu", "hidden": config.count("intermediate_size")},
                    "norm": norm,
                    "placement": "pre_sandwich",
                },
                "core": layers,
                "start": "embedding",
                "injection": "none",
                "carry": "readout",
                "readout": {"type": "norm", "norm": norm},
                "gate": {"type": "linear", "reads": "readout"},
                "head": {"tied": config.flag("tie_word_embeddings", False)},
            },
            objective={"supervision": "exit_weighted"},
            loops=loops,
            length=config.count("max_position_embeddings", 2048),
            notes=_early_exit(config.get("early_exit_threshold")),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, length: int) -> dict[str, Any]:
        block, position = model["block"], model["position"]
        attention, mlp = block.get("attention", {}), block.get("mlp", {})
        heads, width = attention.get("heads", 1), model["width"]
        config = {
            "architectures": list(self.classes),
            "attention_dropout": attention.get("dropout", 0.0),
            "early_exit_threshold": 1.0,
            "hidden_act": "silu",
            "hidden_size": width,
            "intermediate_size": mlp.get("hidden") or round(mlp.get("ratio", 4.0) * width),
            "max_position_embeddings": length,
            "model_type": self.model_type,
            "num_attention_heads": heads,
            "num_hidden_layers": model["core"].get("layers", 1),
            "num_key_value_heads": attention.get("kv_heads") or heads,
            "rms_norm_eps": model["readout"].get("norm", {}).get("eps", 1e-6),
            "rope_scaling": None,
            "rope_theta": position.get("base", 10000.0),
            "tie_word_embeddings": model["head"]["tied"],
            "total_ut_steps": loops,
            "use_sliding_window": False,
            "vocab_size": model["vocabulary"],
        }
        if (size := attention.get("head_size")) is not None and size * heads != width:
            config["head_dim"] = size
        return config

    def links(self, model: Mapping[str, Any], *, length: int) -> Links:
        width, vocabulary, layers = model["width"], model["vocabulary"], model["core"]["layers"]
        found = [same("model.embed_tokens.weight", (vocabulary, width), "embedding.tokens.weight")]
        for i in range(layers):
            found += _layer(model, f"model.layers.{i}", f"core.blocks.{i}")
        found += [
            same("model.norm.weight", (width,), "readout.norm.weight"),
            same("model.early_exit_gate.weight", (1, width), "gate.linear.weight"),
            same("model.early_exit_gate.bias", (1,), "gate.linear.bias"),
        ]
        if model["head"]["tied"]:
            return Links(tuple(found), {"lm_head.weight": "model.embed_tokens.weight"})
        return Links((*found, same("lm_head.weight", (vocabulary, width), "head.weight")), {})


def _layer(model: Mapping[str, Any], theirs: str, ours: str) -> list[Link]:
    width, attention = model["width"], model["block"]["attention"]
    heads = attention["heads"]
    size = attention["head_size"] or width // heads
    queries, keys = heads * size, (attention["kv_heads"] or heads) * size
    mlp = model["block"]["mlp"]
    inside = mlp["hidden"] or round(mlp["ratio"] * width)
    projections = [("q", queries), ("k", keys), ("v", keys)]
    fused = tuple((f"{theirs}.self_attn.{letter}_proj.weight", (rows, width)) for letter, rows in projections)
    norms = {
        "input_layernorm": "around_attention.norm_in",
        "input_layernorm_2": "around_attention.norm_out",
        "post_attention_layernorm": "around_mlp.norm_in",
        "post_attention_layernorm_2": "around_mlp.norm_out",
    }
    return [
        Link(fused, (f"{ours}.attention.qkv.weight",)),
        same(f"{theirs}.self_attn.o_proj.weight", (width, queries), f"{ours}.attention.out.weight"),
        same(f"{theirs}.mlp.gate_proj.weight", (inside, width), f"{ours}.mlp.gate.weight"),
        same(f"{theirs}.mlp.up_proj.weight", (inside, width), f"{ours}.mlp.up.weight"),
        same(f"{theirs}.mlp.down_proj.weight", (width, inside), f"{ours}.mlp.out.weight"),
        *(same(f"{theirs}.{name}.weight", (width,), f"{ours}.{norm}.weight") for name, norm in norms.items()),
    ]


def rope_base(config: Config) -> float:
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


def full_attention(config: Config, layers: int) -> None:
    """Refuse windows; a width of window that is switched off changes nothing."""
    switched_off = config.get("use_sliding_window") is False
    config.only("use_sliding_window", False, why="attention within a sliding window is not supported")
    if not switched_off:
        config.only("sliding_window", why="attention within a sliding window is not supported")
    config.pass_over("sliding_window")
    config.only("layer_types", ["full_attention"] * layers, why="every layer must attend to all that came before")


def _early_exit(threshold: Any) -> tuple[str, ...]:
    if isinstance(threshold, int | float) and threshold < 1:
        return (
            f"early_exit_threshold {threshold}: the published model stops each token there by itself; loopkit runs as "
            f"many loops as it is asked to, and stops early with the exit gate_cdf, threshold {threshold}, level token",
        )
    return ()
