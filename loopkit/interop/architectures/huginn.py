"""Huginn: post-sandwich blocks before, in and after the loop, which an adapter of state and input enters.

e = prelude(sqrt(D) * embedding);  s_0 ~ N(0, 2/5) cut at three;  s_k = core(W [s_{k-1}, e]);  z = N(coda(N(s)))

Paper: arXiv:2502.05171. The published modelling file is what the names come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from loopkit.interop.architectures import Form, Reading
from loopkit.interop.config import Config
from loopkit.interop.weight_map import DerivedTensor, Link, Links, same

STD = math.sqrt(2 / 5)
"""Of the first state: sqrt(2 / (5 width)), times the embedding's scale, sqrt(width)."""

STAGES = {"prelude": "prelude", "core": "core_block", "coda": "coda"}


class Huginn(Form):
    """``RavenForCausalLM``."""

    name = "huginn"
    model_type = "huginn_raven"
    classes = ("RavenForCausalLM",)

    def read(self, config: Config) -> Reading:
        width, heads = config.count("n_embd"), config.count("n_heads")
        keys, loops = config.count("num_key_value_heads", heads), config.count("mean_recurrence", 32)
        norm = {"type": "rmsnorm", "eps": config.number("norm_eps", 1e-6)}
        biased = config.flag("qk_bias", True)
        if biased and keys != heads:
            config.refuse(f"num_key_value_heads is {keys}: its qk_bias is as wide for keys as for queries")
        config.only("head_dim", width // heads, why="its heads do not share the width out")
        config.only("bias", False, why="its matrices have biases, which the published Huginn has not")
        config.only("block_class_name", "SandwichBlock", why="its blocks are placed otherwise")
        config.only("mlp_class_name", "GatedMLP", why="its MLP is another")
        config.only("nonlin_name", "SiLU", why="the gate of its MLP bends otherwise than SiLU")
        config.only("norm_class_name", "RMSNorm_llama", "RMSNorm", why="its norms are others")
        config.only("injection_type", "linear", why="the input enters its loops otherwise than by a matrix")
        config.only("state_init", "like-init", why="its first state is another")
        config.only("test_time_noise", 0, 0.0, why="noise enters its loops")
        config.pass_over("test_time_noise_type", "activation_checkpoint_impl", "architecture_class_name", "n_layers")
        config.pass_over("effective_expected_depth", "init_orthogonal", "init_strategy", "mean_backprop_depth")
        config.pass_over("padding_multiple", "sampling_scheme", "vocab_size")
        _first_values(config, width)
        return Reading(
            model={
                "width": width,
                "vocabulary": config.count("padded_vocab_size"),
                "embedding": {"scale": "sqrt_width"},
                "position": {"type": "rope", "base": config.number("rope_base", 50000.0), "pairing": "interleaved"},
                "block": {
                    "type": "transformer",
                    "attention": {"type": "causal", "heads": heads, "kv_heads": keys, "qk_bias": biased},
                    "mlp": {"type": "swiglu", "hidden": config.count("intermediate_size")},
                    "norm": norm,
                    "placement": "post_sandwich",
                },
                "prelude": {"layers": config.count("n_layers_in_prelude")},
                "core": config.count("n_layers_in_recurrent_block"),
                "coda": {"layers": config.count("n_layers_in_coda"), "norm": norm},
                "start": {"type": "normal", "std": STD, "cut": 3.0},
                "injection": "concat",
                "carry": "identity",
                "readout": {"type": "norm", "norm": norm},
                "gate": "none",
                "head": {"tied": config.flag("tie_embeddings", True)},
                "tie": {"coda.norm": "readout.norm"},
            },
            objective={"supervision": "terminal"},
            loops=loops,
            length=config.count("block_size", 4096),
            notes=("the first state is random: loopkit draws it from the sequence's number and the token's place",),
        )

    def write(self, model: Mapping[str, Any], *, loops: int, length: int) -> dict[str, Any]:
        block, position, width = model["block"], model["position"], model["width"]
        attention, mlp = block.get("attention", {}), block.get("mlp", {})
        heads = attention.get("heads", 1)
        layers = [model["prelude"]["layers"], model["core"].get("layers", 1), model["coda"]["layers"]]
        std, depth = math.sqrt(2 / (5 * width)), layers[0] + layers[1] * loops + layers[2]
        return {
            "architecture_class_name": "RecurrentGPT",
            "architectures": list(self.classes),
            "bias": False,
            "block_class_name": "SandwichBlock",
            "block_size": length,
            "effective_expected_depth": depth,
            "head_dim": width // heads,
            "init_strategy": "takase",
            "init_values": {
                "embed_scale": math.sqrt(width),
                "embedding": std,
                "out_proj": std / math.sqrt(2 * depth),
                "std": std,
            },
            "injection_type": "linear",
            "intermediate_size": mlp.get("hidden") or round(mlp.get("ratio", 4.0) * width),
            "mean_backprop_depth": min(8, loops),
            "mean_recurrence": loops,
            "mlp_class_name": "GatedMLP",
            "model_type": self.model_type,
            "n_embd": width,
            "n_heads": heads,
            "n_layers": sum(layers),
            "n_layers_in_coda": layers[2],
            "n_layers_in_prelude": layers[0],
            "n_layers_in_recurrent_block": layers[1],
            "nonlin_name": "SiLU",
            "norm_class_name": "RMSNorm_llama",
            "norm_eps": model["readout"].get("norm", {}).get("eps", 1e-6),
            "num_key_value_heads": attention.get("kv_heads") or heads,
            "padded_vocab_size": model["vocabulary"],
            "padding_multiple": 1,
            "qk_bias": attention.get("qk_bias", False),
            "rope_base": position.get("base", 50000.0),
            "sampling_scheme": "poisson-lognormal-filling",
            "state_init": "like-init",
            "test_time_noise": 0,
            "tie_embeddings": model["head"]["tied"],
            "vocab_size": model["vocabulary"],
        }

    def links(self, model: Mapping[str, Any], *, length: int) -> Links:
        width, vocabulary = model["width"], model["vocabulary"]
        found = [same("transformer.wte.weight", (vocabulary, width), "embedding.tokens.weight")]
        for ours, theirs in STAGES.items():
            for i in range(model[ours]["layers"]):
                found += _block(model, f"transformer.{theirs}.{i}", f"{ours}.blocks.{i}")
        found += [
            same("transformer.adapter.weight", (width, 2 * width), "injection.mix.weight"),
            same("transformer.ln_f.weight", (width,), "coda.norm.weight"),
        ]
        if not model["head"]["tied"]:
            found.append(same("lm_head.weight", (vocabulary, width), "head.weight"))
        copies = {"lm_head.weight": "transformer.wte.weight"} if model["head"]["tied"] else {}
        size = width // model["block"]["attention"]["heads"]
        return Links(tuple(found), copies, {"freqs_cis": _rotation(model["position"]["base"], length, size)})


def _block(model: Mapping[str, Any], theirs: str, ours: str) -> list[Link]:
    width, attention, mlp = model["width"], model["block"]["attention"], model["block"]["mlp"]
    heads = attention["heads"]
    size = width // heads
    rows = (heads + 2 * (attention["kv_heads"] or heads)) * size
    inside = mlp["hidden"] or round(mlp["ratio"] * width)
    norms = ("around_attention.norm_in", "around_attention.norm_out", "around_mlp.norm_in", "around_mlp.norm_out")
    found = [
        same(f"{theirs}.attn.Wqkv.weight", (rows, width), f"{ours}.attention.qkv.weight"),
        same(f"{theirs}.attn.proj.weight", (width, width), f"{ours}.attention.out.weight"),
        Link(((f"{theirs}.mlp.fc.weight", (2 * inside, width)),), (f"{ours}.mlp.gate.weight", f"{ours}.mlp.up.weight")),
        same(f"{theirs}.mlp.proj.weight", (width, inside), f"{ours}.mlp.out.weight"),
        *(same(f"{theirs}.norm_{i}.weight", (width,), f"{ours}.{norm}.weight") for i, norm in enumerate(norms, 1)),
    ]
    if attention["qk_bias"]:
        bias = ((f"{theirs}.attn.qk_bias", (2, 1, heads, size)),)
        found.append(Link(bias, (f"{ours}.attention.qk_bias",), flat=True))
    return found


def _first_values(config: Config, width: int) -> None:
    """The scale of embedding and first state, which the configuration holds as numbers."""
    values = config.get("init_values")
    if values is None:
        return
    found = values if isinstance(values, dict) else {}
    scale, std = found.get("embed_scale"), found.get("std")
    if not isinstance(scale, int | float) or not math.isclose(scale, math.sqrt(width), rel_tol=1e-6):
        config.refuse(f"init_values has embed_scale {scale!r}: it must be the square root of n_embd, {width}")
    elif not isinstance(std, int | float) or not math.isclose(std * scale, STD, rel_tol=1e-6):
        config.refuse(f"init_values has std {std!r}: it must be the square root of 2 / (5 n_embd)")


def _rotation(base: float, length: int, size: int) -> DerivedTensor:
    """The cosines and sines that published weights hold beside the weights, ``[1, length, 1, size / 2, 2]``."""

    def make() -> np.ndarray:
        frequency = 1.0 / base ** (np.arange(0, size, 2, dtype=np.float64) / size)
        angle = np.arange(length, dtype=np.float64)[:, None] * frequency
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)[None, :, None].astype(np.float32)

    return DerivedTensor((1, length, 1, size // 2, 2), make)
