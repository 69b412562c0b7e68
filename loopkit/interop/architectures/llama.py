"""Llama: pre-norm blocks, each applied once. It is a loop that runs once, or the material of one (``retrofit``).

for each layer: x = x + attention(N1 x), x = x + mlp(N2 x);  logits = W N(x)

Paper: arXiv:2302.13971. The published modelling file is what the names come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopkit.interop.architectures import Form, Reading
from loopkit.interop.architectures.ouro import full_attention, rope_base
from loopkit.interop.config import Config
from loopkit.interop.links import Link, Links, same


class Llama(Form):
    """``LlamaForCausalLM``."""

    name = "llama"
    model_type = "llama"
    classes = ("LlamaForCausalLM",)

    def read(self, config: Config) -> Reading:
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
        config.pass_over("pretraining_tp")
        full_attention(config, layers)
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
                    "placement": "pre",
                },
                "core": layers,
                "start": "embedding",
                "injection": "none",
                "carry": "identity",
                "readout": {"type": "norm", "norm": norm},
                "gate": "none",
                "head": {"tied": config.flag("tie_word_embeddings", False)},
            },
            objective={"supervision": "terminal"},
            loops=1,
            length=config.count("max_position_embeddings", 2048),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, length: int) -> dict[str, Any]:
        block, position, width = model["block"], model["position"], model["width"]
        attention, mlp = block.get("attention", {}), block.get("mlp", {})
        heads = attention.get("heads", 1)
        config = {
            "architectures": list(self.classes),
            "attention_bias": False,
            "attention_dropout": attention.get("dropout", 0.0),
            "hidden_act": "silu",
            "hidden_size": width,
            "intermediate_size": mlp.get("hidden") or round(mlp.get("ratio", 4.0) * width),
            "max_position_embeddings": length,
            "mlp_bias": False,
            "model_type": self.model_type,
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

    def links(self, model: Mapping[str, Any], *, length: int) -> Links:
        width, vocabulary = model["width"], model["vocabulary"]
        found = [same("model.embed_tokens.weight", (vocabulary, width), "embedding.tokens.weight")]
        for i in range(model["core"]["layers"]):
            found += _layer(model, f"model.layers.{i}", f"core.blocks.{i}")
        found.append(same("model.norm.weight", (width,), "readout.norm.weight"))
        if model["head"]["tied"]:
            return Links(tuple(found), {"lm_head.weight": "model.embed_tokens.weight"})
        return Links((*found, same("lm_head.weight", (vocabulary, width), "head.weight")), {})


def _layer(model: Mapping[str, Any], theirs: str, ours: str) -> list[Link]:
    width, attention, mlp = model["width"], model["block"]["attention"], model["block"]["mlp"]
    heads = attention["heads"]
    size = attention["head_size"] or width // heads
    queries, keys = heads * size, (attention["kv_heads"] or heads) * size
    inside = mlp["hidden"] or round(mlp["ratio"] * width)
    rows = {"q": queries, "k": keys, "v": keys}
    fused = tuple((f"{theirs}.self_attn.{letter}_proj.weight", (count, width)) for letter, count in rows.items())
    return [
        Link(fused, (f"{ours}.attention.qkv.weight",)),
        same(f"{theirs}.self_attn.o_proj.weight", (width, queries), f"{ours}.attention.out.weight"),
        same(f"{theirs}.mlp.gate_proj.weight", (inside, width), f"{ours}.mlp.gate.weight"),
        same(f"{theirs}.mlp.up_proj.weight", (inside, width), f"{ours}.mlp.up.weight"),
        same(f"{theirs}.mlp.down_proj.weight", (width, inside), f"{ours}.mlp.out.weight"),
        same(f"{theirs}.input_layernorm.weight", (width,), f"{ours}.around_attention.norm.weight"),
        same(f"{theirs}.post_attention_layernorm.weight", (width,), f"{ours}.around_mlp.norm.weight"),
    ]
